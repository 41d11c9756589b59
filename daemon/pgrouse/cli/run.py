"""`pgrouse run`: the daemon."""

from __future__ import annotations

import click

from pgrouse import log
from pgrouse.alerts.validate import validate_sinks
from pgrouse.cli.command import CliSession, Command
from pgrouse.errors import ConfigError
from pgrouse.worker import daemon as service


@click.command(cls=Command)
@click.option("--concurrency", type=int, help="Handlers that run at once, per process: instead of worker.concurrency.")
@click.option("--processes", type=int, help="Daemon processes: instead of worker.processes.")
@click.option("--name", help="The worker's name: instead of worker.name.")
@click.option(
    "--log-level", "level", type=click.Choice(["debug", "info", "warning", "error"]), help="Instead of log.level."
)
@click.option("--log-format", "format_", type=click.Choice(["auto", "console", "json"]), help="Instead of log.format.")
@click.option("--apply-policies", is_flag=True, help="Write the policies of the file into the database first.")
@click.pass_obj
def run(
    session: CliSession,
    concurrency: int | None,
    processes: int | None,
    name: str | None,
    level: str | None,
    format_: str | None,
    apply_policies: bool,
) -> int:
    """Run the daemon: process messages until it is stopped.

    SIGTERM or Ctrl-C lets running handlers end (worker.shutdown_timeout), a second one stops at once, SIGHUP reads the configuration again.
    """
    session.overrides["worker"] = {"concurrency": concurrency, "processes": processes, "name": name}
    session.overrides["log"] = {"level": level, "format": format_ or ("json" if session.as_json else None)}
    session.overrides["database"] = {"apply_policies": "run" if apply_policies else None}
    config = session.config
    if not config.topics_with_handler:
        where = config.path or "a pgrouse.toml (`pgrouse init` writes one)"
        raise ConfigError(f'there is no handler: add a table [topics."orders.created"] with its handler to {where}')
    if config.alerts.to:
        validate_sinks(config)
    log.setup(config)
    return service.run(config)
