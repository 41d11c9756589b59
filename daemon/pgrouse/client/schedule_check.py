"""Whether the server can use the schedules of a configuration.

Only the server knows its time zones, and when an expression ticks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import psycopg

from pgrouse.client.call import run
from pgrouse.client.calls.schedule import next_ticks
from pgrouse.client.schedule_change import ScheduleChange
from pgrouse.config.config import Config
from pgrouse.config.schedules import ScheduleSettings
from pgrouse.config.source import ConfigProblem, ConfigProblems, show_key

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
