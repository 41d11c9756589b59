"""`pgrouse top`: the queue, live on a terminal."""

from __future__ import annotations

import sys
from datetime import timedelta

import click

from pgrouse.cli.command import Command, Session
from pgrouse.cli.param_types import DURATION
from pgrouse.errors import ConfigError


@click.command(cls=Command)
@click.option("--every", type=DURATION, default="1s", show_default=True, help="How often to look, 200ms to 1h.")
@click.pass_obj
def top(session: Session, every: timedelta) -> None:
    """Watch topics, workers and dead messages live, and act on them.

    ? shows the keys. Where looking takes long, it is done less often. For scripts there is `pgrouse stats --watch`.
    """
    if session.as_json or not _is_on_terminal():
        raise click.UsageError("top draws on a terminal: into a pipe, or as JSON, goes `pgrouse stats --watch`")
    if not timedelta(seconds=0.2) <= every <= timedelta(hours=1):
        raise click.BadParameter("use 200ms to 1h", param_hint="--every")
    try:
        from pgrouse.top.app import Top  # noqa: PLC0415 - textual takes its time
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("pgrouse"):
            raise
        raise ConfigError(f"{error.name} is not installed: pip install 'pgrouse[top]'") from error
    from pgrouse.client.database import Database  # noqa: PLC0415

    view = Top(Database(session.config.database, "cli"), every)
    view.run()
    if view.failure is not None:
        raise view.failure


def _is_on_terminal() -> bool:
    # The screen is drawn on the standard error.
    return all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))
