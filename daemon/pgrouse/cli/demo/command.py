"""The command line of the demo."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from threading import Timer
from types import FrameType

import click

from pgrouse.cli.demo import run
from pgrouse.cli.demo.screen import Screen
from pgrouse.database import schema_name
from pgrouse.errors import ExitCode


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--dir",
    "directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Process every file below this directory. Default: Python's standard library.",
)
@click.option("--files", "limit", type=click.IntRange(min=1), help="The maximum number of files.")
@click.option(
    "--dsn",
    envvar="PGROUSE_DEMO_DSN",
    show_envvar=True,
    help="Use this database, which must not have a schema `messages`. Default: a private server.",
)
@click.option("--keep", is_flag=True, help="Leave the server and the daemons running, and print how to use them.")
@click.option("--stop", is_flag=True, help="Stop the server and the daemons that --keep left running.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON; the log goes to the standard error.")
def demo(directory: Path | None, limit: int | None, dsn: str | None, keep: bool, stop: bool, as_json: bool) -> int:
    """See pgrouse work on real files, with its own database.

    It starts a private PostgreSQL and two daemons, publishes a message for each file in one transaction with its row in
    a table, and shows how the files are read, how failed messages are tried again, what happens to the messages of a
    killed worker, how messages without a notification are found, and how soon a sleeping worker wakes. Then it checks
    its results: exit code 0 if all are right, 1 if not.
    """
    # Its files are written for this schema.
    schema_name.set_default(schema_name.DEFAULT)
    _end_in_order_when_told_to()
    shown = Screen(sys.stderr if as_json else sys.stdout)
    if stop:
        run.stop(dsn, shown)
        return ExitCode.OK
    report = run.run(run.DemoOptions(directory, limit, dsn, keep), shown)
    if as_json:
        click.echo(report.as_json())
    return ExitCode.OK if report.balanced else ExitCode.FOUND_A_PROBLEM


class _Signalled(SystemExit):
    """A signal asked the demo to end. The exit code is 128 plus its number."""


def _end_in_order_when_told_to() -> None:
    """Turn SIGTERM and SIGHUP into an exception like that of Ctrl-C, so that everything is cleaned up.

    SIGHUP arrives when the terminal is closed.
    """
    for each in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, _leave)
    sys.unraisablehook = _leave_again


def _leave(number: int, _frame: FrameType | None) -> None:
    raise _Signalled(128 + number)


def _leave_again(ignored: sys.UnraisableHookArgs) -> None:
    """Send a signal again if Python ignored its exception.

    Python does so where no code could catch it, for example in the hooks of a fork.
    """
    if isinstance(ignored.exc_value, _Signalled | KeyboardInterrupt):
        number = getattr(ignored.exc_value, "code", 128 + signal.SIGINT) - 128
        Timer(0.05, os.kill, [os.getpid(), number]).start()
    else:
        sys.__unraisablehook__(ignored)
