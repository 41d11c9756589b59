"""`pgrouse config`: is the configuration right, what does it say, and where does each value come from?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from pgrouse.cli.command import Group, Session
from pgrouse.cli.output import Column, plural
from pgrouse.errors import ConfigError, ExitCode

if TYPE_CHECKING:
    from pgrouse.config import Config


@click.group(cls=Group)
def config() -> None:
    """Check and show the configuration."""


@config.command()
@click.pass_obj
def check(session: Session) -> int:
    """Check the configuration, its handlers and its keys.

    Handlers are imported, keys are read. Every problem is told with its file, line and key.
    """
    from pgrouse.alerts.check import check as check_sinks  # noqa: PLC0415
    from pgrouse.handler import load, questions  # noqa: PLC0415

    try:
        handlers = load(session.config)
        check_sinks(session.config)
        _check_keys(session.config)
    except ConfigError as error:
        if not session.as_json:
            raise
        for problem in _problems(error):
            session.output.record(problem)
        return error.exit_code
    for question in questions(session.config):
        session.output.note(f"warning: {question}")
    where = str(session.config.path) if session.config.path else None
    if session.as_json:
        session.output.record({"ok": True, "file": where, "topics": sorted(handlers)})
    session.output.say(f"ok: {where or 'no file'}, {plural(len(handlers), 'topic')}, their handlers can be imported")
    return ExitCode.OK


def _check_keys(settings: Config) -> None:
    if settings.crypto.current is not None:
        from pgrouse.crypto.keys import cipher_of  # noqa: PLC0415 - only where it is configured

        cipher_of(settings)


def _problems(error: ConfigError) -> list[dict[str, Any]]:
    from pgrouse.config_source import ConfigProblems  # noqa: PLC0415

    if not isinstance(error, ConfigProblems):
        return [{"ok": False, "problem": line} for line in str(error).splitlines()]
    return [
        {
            "ok": False,
            "file": p.origin.file,
            "line": p.origin.line,
            "variable": p.origin.variable,
            "key": p.key,
            "problem": p.text,
        }
        for p in error.problems
    ]


@config.command()
@click.pass_obj
def show(session: Session) -> None:
    """Show every value and where it was given. Passwords are hidden."""
    from pgrouse.config import leaves  # noqa: PLC0415
    from pgrouse.config_source import show_key  # noqa: PLC0415

    rows = [
        {"key": show_key(key), "value": _shown(value), "origin": str(session.config.origin(*key))}
        for key, value in leaves(session.config)
    ]
    columns = [
        Column("KEY", "key"),
        Column(
            "VALUE", "value", lambda value: value if isinstance(value, str) and value else json.dumps(value), wide=True
        ),
        Column("FROM", "origin", style=lambda origin: "dim" if origin == "default" else "green"),
    ]
    session.output.rows(columns, rows, "nothing is configured")


def _shown(value: Any) -> Any:
    from pgrouse.dsn import redact  # noqa: PLC0415

    return redact(value) if isinstance(value, str) else value


@config.command()
def schema() -> None:
    """Print the JSON Schema of the file.

    For editors that complete and check TOML.
    """
    from pgrouse.config import Config  # noqa: PLC0415

    described = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Config.model_json_schema(),
        "title": "pgrouse.toml",
    }
    click.echo(json.dumps(described, indent=2))
