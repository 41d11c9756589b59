"""What the database holds of a configuration, policies and schedules: how it differs, and how to apply it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import psycopg

from pgrouse.client.apply import policy_change
from pgrouse.client.apply.policy_change import SettingChange
from pgrouse.client.apply.schedule_change import ScheduleChange, apply_schedules, schedule_differences
from pgrouse.client.call import run
from pgrouse.client.calls.schedule import next_ticks
from pgrouse.config.config import Config
from pgrouse.config.schedules import ScheduleSettings
from pgrouse.config.source import ConfigProblem, ConfigProblems, show_key

AnyChange = SettingChange | ScheduleChange


def differences(conn: psycopg.Connection, settings: Config) -> list[AnyChange]:
    """Return what of the configuration is not in force."""
    return [*policy_change.differences(conn, settings.policies), *schedule_differences(conn, settings)]


def checked_differences(conn: psycopg.Connection, settings: Config) -> list[AnyChange]:
    """Return what of the configuration is not in force, if the server can put it in force.

    Raises:
        ConfigProblems: it cannot use a schedule; with file and line.
    """
    changes = differences(conn, settings)
    check_schedules(conn, settings, (each for each in changes if isinstance(each, ScheduleChange)))
    return changes


def apply(conn: psycopg.Connection, settings: Config) -> list[AnyChange]:
    """Put the configuration in force, all of it or nothing; return what changed.

    The result also has what was kept as it was made by hand.

    Raises:
        psycopg.Error: as policy_change.apply.
        ConfigProblems: as checked_differences.
    """
    checked_differences(conn, settings)
    with conn.transaction():
        return [*policy_change.apply(conn, settings.policies), *apply_schedules(conn, settings)]


ANY_CRON = "@daily"


def check_schedules(conn: psycopg.Connection, settings: Config, changes: Iterable[ScheduleChange]) -> None:
    """Check the schedules that are not in force as they are declared.

    Those that are in force were checked when they were written.

    Raises:
        ConfigProblems: what is wrong, with file and line.
    """
    names = [each.name for each in changes if each.action != "remove"]
    if problems := [problem for name in names for problem in _problems(conn, settings, name)]:
        raise ConfigProblems(problems)


def _problems(conn: psycopg.Connection, settings: Config, name: str) -> Iterator[ConfigProblem]:
    wanted = settings.schedules[name]
    for setting, text in (("cron", _cron_problem(conn, wanted)), ("time_zone", _zone_problem(conn, wanted))):
        if text is not None:
            key = ("schedules", name, setting)
            yield ConfigProblem(settings.origin(*key), show_key(key), f"{show_key(key[:2])}.{text}")


def _cron_problem(conn: psycopg.Connection, wanted: ScheduleSettings) -> str | None:
    text, ticks = _try(conn, wanted.cron, "UTC")
    if text is None and not ticks:
        return f'cron is "{wanted.cron}", a day that never comes: use a day that the month has, or L for the last one'
    return text


def _zone_problem(conn: psycopg.Connection, wanted: ScheduleSettings) -> str | None:
    return None if wanted.time_zone == "UTC" else _try(conn, ANY_CRON, wanted.time_zone)[0]


def _try(conn: psycopg.Connection, cron: str, time_zone: str) -> tuple[str | None, int]:
    """Ask for the next tick; return what is wrong, and how many ticks there are."""
    try:
        with conn.transaction():
            return None, len(run(conn, next_ticks(cron, time_zone, 1)))
    except psycopg.errors.InvalidParameterValue as error:
        return f"{error.diag.message_primary}: {error.diag.message_hint}", 0
