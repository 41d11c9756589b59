"""`pgrouse config`: check the configuration, and show each value with its origin."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click
import psycopg

from pgrouse.alerts import sinks
from pgrouse.alerts.validate import validate_sinks
from pgrouse.cli.command import CliSession, CommandGroup
from pgrouse.cli.policy_diff import change_as_json
from pgrouse.cli.table import Column
from pgrouse.client import policy_change
from pgrouse.config.config import Config, flat_items
from pgrouse.config.dsn import redact
from pgrouse.config.source import ConfigProblems, show_key
from pgrouse.crypto.configured_cipher import load_cipher
from pgrouse.errors import ConfigError, DatabaseUnreachable, ExitCode
from pgrouse.format import plural
from pgrouse.handlers.loader import find_suspicious_settings, load

if TYPE_CHECKING:
    from pgrouse.client.policy_change import SettingChange
    from pgrouse.config.config import Config


@click.group(cls=CommandGroup)
def config() -> None:
    """Check and show the configuration."""


@config.command()
@click.pass_obj
def check(session: CliSession) -> int:
    """Check the configuration, its handlers, keys and policies.

    Handlers are imported, keys are read. Every problem is reported with file, line and key. Exit code 1: the policies in the database
    differ from the file. A database that cannot be reached is no error.
    """
    try:
        handlers = load(session.config)
        validate_sinks(session.config)
        _check_keys(session.config)
    except ConfigError as error:
        if not session.as_json:
            raise
        for problem in _problems(error):
            session.output.record(problem)
        return error.exit_code
    for question in find_suspicious_settings(session.config):
        session.output.note(f"warning: {question}")
    where = str(session.config.path) if session.config.path else None
    changes, unasked = _compare(session)
    if session.as_json:
        about: dict[str, Any] = {"not_in_force": [change_as_json(each) for each in changes]} if changes else {}
        about |= {"not_checked": f"the policies: {unasked}"} if unasked else {}
        session.output.record({"ok": not changes, "file": where, "topics": sorted(handlers), **about})
    for change in changes:
        session.output.say(f"not in force: {change}")
    if unasked:
        session.output.note(f"not checked: whether the policies are in force: {unasked}")
    found = f"{where or 'no file'}, {plural(len(handlers), 'topic')}, their handlers can be imported"
    if changes:
        session.output.say(f"{found}; the policies above are not in force: run `pgrouse topic apply`")
        return ExitCode.FOUND_A_PROBLEM
    session.output.say(f"ok: {found}")
    return ExitCode.OK


def _compare(session: CliSession) -> tuple[list[SettingChange], str | None]:
    """Return how the policies in the database differ from the configuration; or nothing, and why it could not be read."""
    if not session.config.policies:
        return [], None

    try:
        with session.read() as conn:
            return policy_change.differences(conn, session.config.policies), None
    except (DatabaseUnreachable, psycopg.Error) as error:
        return [], " ".join(str(error).split())


def _check_keys(settings: Config) -> None:
    if settings.crypto.current is not None:
        load_cipher(settings)


def _problems(error: ConfigError) -> list[dict[str, Any]]:

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
def show(session: CliSession) -> None:
    """Show every value and where it was set. Passwords are hidden."""
    rows = [
        {"key": show_key(key), "value": _shown(value), "origin": str(session.config.origin(*key))}
        for key, value in flat_items(session.config)
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

    return redact(value) if isinstance(value, str) else value


@config.command()
def schema() -> None:
    """Print the JSON Schema of the file.

    For editors that complete and check TOML.
    """
    described = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Config.model_json_schema(),
        "title": "pgrouse.toml",
    }
    sink = sinks.describe()
    described["$defs"] |= {**sink.pop("$defs"), "AlertSink": sink}
    click.echo(json.dumps(described, indent=2))
