"""`pgrouse run`: the daemon."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from pgrouse.alerts.validate import validate_sinks
from pgrouse.config.config import find
from pgrouse.errors import ConfigError, LifespanFailed
from pgrouse.logging import log
from pgrouse.process import stop_signals
from pgrouse.process.file_watch import FileWatch, check_installed
from pgrouse.terminal.command import CliSession, Command
from pgrouse.terminal.error_report import report
from pgrouse.terminal.standard_streams import discard_unwritable, do_without_stdout
from pgrouse.worker import daemon as service
from pgrouse.worker import supervisor
from pgrouse.worker.process_exit import reexec

# With --reload running handlers have this long to end, whatever the file says: a developer waits for them.
RELOAD_SHUTDOWN_TIMEOUT = "2s"


@click.command(cls=Command)
@click.option(
    "-m",
    "--module",
    "modules",
    multiple=True,
    help="A module whose @topic functions are handlers: instead of handlers.modules.",
)
@click.option("--concurrency", type=int, help="Handlers that run at once, per process: instead of worker.concurrency.")
@click.option("--processes", type=int, help="Daemon processes: instead of worker.processes.")
@click.option("--name", help="The worker's name: instead of worker.name.")
@click.option(
    "--log-level", "level", type=click.Choice(["debug", "info", "warning", "error"]), help="Instead of log.level."
)
@click.option(
    "--log-format",
    "format_",
    type=click.Choice(["auto", "console", "json"]),
    help="Instead of log.format; --json is the same as `--log-format json`.",
)
@click.option(
    "--apply-policies",
    is_flag=True,
    help="Write the policies and schedules of the configuration into the database first, "
    "as with database.apply_policies = 'run'.",
)
@click.option(
    "--reload",
    is_flag=True,
    help="For development: restart when a file of the handlers changes, and log every message.",
)
@click.pass_obj
def run(
    session: CliSession,
    modules: tuple[str, ...],
    concurrency: int | None,
    processes: int | None,
    name: str | None,
    level: str | None,
    format_: str | None,
    apply_policies: bool,
    reload: bool,
) -> int:
    """Run the daemon: process messages until it is stopped.

    SIGTERM or Ctrl-C lets running handlers end (worker.shutdown_timeout), a second one stops at once, SIGHUP reads the
    configuration again.
    """
    patience = RELOAD_SHUTDOWN_TIMEOUT if reload else None
    worker = {"concurrency": concurrency, "processes": processes, "name": name, "shutdown_timeout": patience}
    session.overrides["worker"] = worker
    session.overrides["handlers"] = {"modules": list(modules) or None}
    level = level or ("debug" if reload else None)
    session.overrides["log"] = {"level": level, "format": format_ or ("json" if session.as_json else None)}
    session.overrides["database"] = {"apply_policies": "run" if apply_policies else None}
    return _run_reloading(session) if reload and not supervisor.is_supervised() else _run(session)


def _run(session: CliSession) -> int:
    do_without_stdout()
    if supervisor.is_supervised():
        supervisor.link().watch_start()
    # First: what goes wrong while modules are imported is logged.
    log.setup(session.config)
    config = session.config_with_code
    if not config.topics_with_handler:
        raise ConfigError(f"there is no handler: {session.how_to_add_a_handler(config)}")
    if config.alerts.to:
        validate_sinks(config)
    code = service.run(config)
    discard_unwritable()  # what handlers have printed
    return code


def _run_reloading(session: CliSession) -> int:
    """Run the daemon and restart it after changes, also when a change fixes what kept it from starting."""
    check_installed()
    watch: FileWatch | None = None
    try:
        config = session.config
        watch = FileWatch(config.handlers.import_path, config.path)
        return _run(session)
    except (ConfigError, LifespanFailed) as error:
        # Before the error is shown: a file that is corrected at once counts.
        watch = watch or _watch_config(session)
        report(error, sys.stderr)
        stop_signals.deliver_to(stop_signals.end_before_start)
        watch.wait()
        reexec()


def _watch_config(session: CliSession) -> FileWatch:
    file = find(session.config_path)
    return FileWatch([] if file else [Path.cwd()], file)
