"""Reports the error of a failed command: one line on the standard error, and the exit code.

The line has the problem and the fix.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TextIO

import click

from pgrouse.config.dsn import redact
from pgrouse.database.database_errors import explain
from pgrouse.errors import ExitCode
from pgrouse.terminal.output import folded
from pgrouse.terminal.standard_streams import discard_unwritable, with_fix
from pgrouse.values.format import harmless

SIGPIPE_EXIT_CODE = 128 + 13  # as a shell shows the end by SIGPIPE


def report(error: BaseException, stream: TextIO) -> int:
    """Write the error; return the exit code. Unexpected errors are shown in full."""
    text, code = explain_error(error)
    lines = text.splitlines()
    if not isinstance(error, click.exceptions.NoArgsIsHelpError):
        lines = [_printable_line(line) for line in lines]
    with suppress(OSError):
        stream.writelines(f"{line}\n" for line in lines)
    discard_unwritable()
    return int(code)


def _printable_line(line: str) -> str:
    return folded(f"pgrouse: {redact(harmless(line))}")


def explain_error(error: BaseException) -> tuple[str, int]:
    """Return the line to print, empty for none, and the exit code."""
    match error:
        case click.exceptions.NoArgsIsHelpError():
            return error.format_message(), ExitCode.USAGE
        case click.exceptions.Exit():
            return "", error.exit_code
        case click.ClickException():
            return _of_command_line(error), ExitCode.USAGE
        case click.Abort() | KeyboardInterrupt():
            return "interrupted", ExitCode.INTERRUPTED
        case BrokenPipeError():
            return "", SIGPIPE_EXIT_CODE
    return explain(with_fix(error))


def _of_command_line(error: click.ClickException) -> str:
    if not isinstance(error, click.UsageError):
        return error.format_message()
    path = error.ctx.command_path if error.ctx else "pgrouse"
    said = error.format_message().rstrip(".")
    return f"{said[:1].lower()}{said[1:]}: see `{path} --help`"
