"""Reports the error of a failed command: one line on the standard error with the problem and the fix, and the exit code."""

from __future__ import annotations

import os
import sys
from typing import TextIO

import click

from pgrouse.cli.output import folded
from pgrouse.config.dsn import redact
from pgrouse.database_errors import explain
from pgrouse.errors import ExitCode
from pgrouse.format import harmless

SIGPIPE_EXIT_CODE = 128 + 13  # as a shell shows the end by SIGPIPE


def report(error: BaseException, stream: TextIO) -> int:
    """Write the error; return the exit code. Unexpected errors are shown in full."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        stream.write(f"{error.format_message()}\n")
        return ExitCode.USAGE
    text, code = explain_error(error)
    stream.writelines(f"{_printable_line(line)}\n" for line in text.splitlines())
    if code == SIGPIPE_EXIT_CODE:
        # The interpreter would complain at exit that it cannot flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return int(code)


def _printable_line(line: str) -> str:
    return folded(f"pgrouse: {redact(harmless(line))}")


def explain_error(error: BaseException) -> tuple[str, int]:
    """Return the line to print, empty for none, and the exit code."""
    match error:
        case click.exceptions.Exit():
            return "", error.exit_code
        case click.ClickException():
            return _of_command_line(error), ExitCode.USAGE
        case click.Abort() | KeyboardInterrupt():
            return "interrupted", ExitCode.INTERRUPTED
        case BrokenPipeError():
            return "", SIGPIPE_EXIT_CODE
    return explain(error)


def _of_command_line(error: click.ClickException) -> str:
    if not isinstance(error, click.UsageError):
        return error.format_message()
    path = error.ctx.command_path if error.ctx else "pgrouse"
    said = error.format_message().rstrip(".")
    return f"{said[:1].lower()}{said[1:]}: see `{path} --help`"
