"""`pgrouse web`: the HTTP API and the dashboard."""

from __future__ import annotations

import click

from pgrouse.alerts.sinks import read_sinks
from pgrouse.errors import ConfigError
from pgrouse.terminal.command import CliSession, Command
from pgrouse.terminal.standard_streams import do_without_stdout


@click.command(cls=Command)
@click.option("--listen", metavar="ADDRESS:PORT", help="Address and port: instead of web.listen.")
@click.pass_obj
def web(session: CliSession, listen: str | None) -> int:
    """Serve the HTTP API and the dashboard until stopped.

    Only this machine can reach it unless web.listen says otherwise; then a token is needed (`pgrouse token add`).
    """
    session.overrides["web"] = {"listen": listen}
    config = session.config
    try:
        from pgrouse.web import server  # noqa: PLC0415 - extra web
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("pgrouse"):
            raise
        raise ConfigError(f"{error.name} is not installed: pip install 'pgrouse[web]'") from error
    read_sinks(config)
    do_without_stdout()
    return server.run(config)
