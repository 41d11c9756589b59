"""`pgrouse top`: the queue, live on a terminal."""

from __future__ import annotations

import sys
from datetime import timedelta

import click

from pgrouse.client.connection.database import Database
from pgrouse.errors import ConfigError
from pgrouse.terminal.command import CliSession, Command
from pgrouse.terminal.param_types import DURATION


@click.command(cls=Command)
@click.option("--interval", type=DURATION, default="1s", show_default=True, help="How often to refresh, 200ms to 1h.")
@click.pass_obj
def top(session: CliSession, interval: timedelta) -> None:
    """Watch topics, workers and dead messages live, and act on them.

    ? shows the keys. If a read takes long, it reads less often. For scripts there is `pgrouse stats --watch`.
    """
    if session.as_json or not _is_on_terminal():
        raise click.UsageError("top needs a terminal: for a pipe or JSON use `pgrouse stats --watch`")
    if not timedelta(seconds=0.2) <= interval <= timedelta(hours=1):
        raise click.BadParameter("use 200ms to 1h", param_hint="--interval")
    try:
        from pgrouse.cli.top.app import Top  # noqa: PLC0415 - extra top
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("pgrouse"):
            raise
        raise ConfigError(f"{error.name} is not installed: pip install 'pgrouse[top]'") from error

    view = Top(Database(session.config.database, "cli"), interval)
    view.run()
    if view.failure is not None:
        raise view.failure


def _is_on_terminal() -> bool:
    # The screen is drawn on the standard error.
    return all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
