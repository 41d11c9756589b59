"""Runs a command, and turns every error into one clear line and an exit code."""

from __future__ import annotations

import os
import sys

import click

from pgrouse.cli.root import root
from pgrouse.errors import ExitCode
from pgrouse.terminal import standard_streams
from pgrouse.terminal.lazy_group import load


def run_command(arguments: list[str], session: object, program: str) -> int:
    """Run a command as `main` does, and return its exit code."""
    if "_PGROUSE_COMPLETE" in os.environ:
        root.main(prog_name=program)  # ends the process
    standard_streams.prepare()
    try:
        return int(_run(arguments, session, program) or ExitCode.OK)
    except click.exceptions.Exit as ended:  # as of --help
        return ended.exit_code
    except BaseException as error:  # noqa: BLE001 - what is not explained there is raised again
        return int(load("pgrouse.terminal.error_report:report")(error, sys.stderr))


def _run(arguments: list[str], session: object, program: str) -> int | None:
    """Call the command. Not by `root.main`, which has exit codes of its own for an interrupt and a closed pipe."""
    with root.make_context(program, arguments, obj=session) as ctx:
        code: int | None = root.invoke(ctx)
        sys.stdout.flush()  # here a closed pipe can still be reported
        return code
