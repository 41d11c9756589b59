"""`pgrouse config`: check the configuration, and show each value with its origin."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click
import psycopg

from pgrouse.alerts import sinks
from pgrouse.alerts.validate import validate_sinks
from pgrouse.cli.policy.difference import change_as_json
from pgrouse.client.apply import configuration_change
from pgrouse.client.apply.schedule_change import ScheduleChange
from pgrouse.config.config import Config, flat_items
from pgrouse.config.dsn import redact
from pgrouse.config.source import ConfigProblems, Key, show_key
from pgrouse.crypto.configured_cipher import load_cipher
from pgrouse.database.install.schema import is_installed
from pgrouse.errors import ConfigError, DatabaseUnreachable, ExitCode
from pgrouse.handlers.declaration.loader import find_redact, find_suspicious_settings, load
from pgrouse.terminal.command import CliSession, CommandGroup
from pgrouse.terminal.table import Column
from pgrouse.values.format import plural

if TYPE_CHECKING:
    from pgrouse.client.apply.configuration_change import AnyChange
    from pgrouse.config.config import Config

    Compare = Callable[[psycopg.Connection, Config], list[AnyChange]]


@click.group(cls=CommandGroup)
def config() -> None:
    """Check and show the configuration."""


@config.command()
@click.pass_obj
def check(session: CliSession) -> int:
    """Check the configuration, its handlers, keys and policies.

    Handlers are imported, keys are read, and the server checks schedules. Every problem is reported with file, line and
    key. Exit code 1: the policies in the database differ from the file. A database that cannot be reached is no error.
    """
    try:
        settings = session.config_with_code
        handlers = load(settings)
        if settings.web.redact:
            find_redact(settings)
        validate_sinks(settings)
        _check_keys(settings)
        changes, unasked = _compare(session, configuration_change.checked_differences)
    except ConfigError as error:
        if not session.as_json:
            raise
        for problem in _problems(error):
            session.record(problem)
        return error.exit_code
    for question in find_suspicious_settings(settings):
        session.note(f"warning: {question}")
    where = str(session.config.path) if session.config.path else None
    if session.as_json:
        about: dict[str, Any] = {"not_in_force": [change_as_json(each) for each in changes]} if changes else {}
        about |= {"not_checked": f"policies and schedules: {unasked}"} if unasked else {}
        session.record({"ok": not changes, "file": where, "topics": sorted(handlers), **about})
    for change in changes:
        session.say(f"not in force: {change}")
    if unasked:
        session.note(f"not checked: whether policies and schedules are in force: {unasked}")
    found = f"{where or 'no file'}, {plural(len(handlers), 'topic')}, their handlers can be imported"
    if changes:
        session.say(f"{found}; what stands above is not in force: run `pgrouse migrate`")
        return ExitCode.FOUND_A_PROBLEM
    session.say(f"ok: {found}")
    return ExitCode.OK


def _compare(
    session: CliSession, compare: Compare = configuration_change.differences
) -> tuple[list[AnyChange], str | None]:
    """Return what is not in force in the database; or nothing, and why it could not be read."""
    settings = session.config_with_code
    if not settings.policies and not settings.schedules:
        return [], None
    try:
        with session.read() as conn:
            if not is_installed(conn):
                return [], "the schema is not installed: run `pgrouse migrate`"
            return compare(conn, settings), None
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
    """Show every value and where it was set. Passwords are hidden.

    Values of policies and schedules that differ in the database are shown as they are in force there.
    """
    settings = session.config_with_code
    changes, unasked = _compare(session)
    if unasked:
        session.note(f"not checked: whether policies and schedules are in force: {unasked}")
    in_force = dict(pair for each in changes for pair in _in_force(each))
    rows = [
        {
            "key": show_key(key),
            "value": _shown(value),
            "origin": str(settings.origin(*key)),
            "in_force": _instead(in_force, key),
        }
        for key, value in flat_items(settings)
    ]
    columns = [
        Column("KEY", "key"),
        Column(
            "VALUE", "value", lambda value: value if isinstance(value, str) and value else json.dumps(value), wide=True
        ),
        Column("FROM", "origin", style=lambda origin: "dim" if origin == "default" else "green"),
        Column("IN FORCE", "in_force", optional=True, style=lambda _: "yellow"),
    ]
    session.rows(columns, rows, "nothing is configured")


def _instead(in_force: dict[Key, str], key: Key) -> str | None:
    """Return what is in force instead of a value, if anything is: of the setting that it is, or is a part of."""
    return next((in_force[each] for each in (key, key[:3], key[:5]) if each in in_force), None)


def _in_force(change: AnyChange) -> Iterator[tuple[Key, str]]:
    """Yield the settings that are otherwise in the database, each with what it is there."""
    if isinstance(change, ScheduleChange):
        for setting in change.new:
            yield ("schedules", change.name, setting), change.text(change.old.get(setting))
    elif change.setting == "subscription":
        yield ("topics", change.topic, "subscriptions"), f"not to {change.new}"
    elif change.channel is None:
        yield ("topics", change.topic, change.setting), change.text(change.old)
    else:
        yield ("topics", change.topic, "channels", change.channel, change.setting), change.text(change.old)


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
