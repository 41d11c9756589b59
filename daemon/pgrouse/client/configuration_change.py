"""What the database holds of a configuration, policies and schedules: how it differs, and how to apply it."""

from __future__ import annotations

import psycopg

from pgrouse.client import policy_change
from pgrouse.client.policy_change import SettingChange
from pgrouse.client.schedule_change import ScheduleChange, apply_schedules, schedule_differences
from pgrouse.client.schedule_check import check_schedules
from pgrouse.config.config import Config

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
