"""What the database holds of a configuration, policies and schedules: how it differs, and how to apply it."""

from __future__ import annotations

import psycopg

from pgrouse.client import policy_change
from pgrouse.client.policy_change import SettingChange
from pgrouse.client.schedule_change import ScheduleChange, apply_schedules, schedule_differences
from pgrouse.config.config import Config

AnyChange = SettingChange | ScheduleChange


def differences(conn: psycopg.Connection, settings: Config) -> list[AnyChange]:
    """Return what of the configuration is not in force."""
    return [*policy_change.differences(conn, settings.policies), *schedule_differences(conn, settings)]


def apply(conn: psycopg.Connection, settings: Config) -> list[AnyChange]:
    """Put the configuration in force, all of it or nothing; return what changed, and what was kept as it was made by hand.

    Raises:
        psycopg.Error: as policy_change.apply.
    """
    with conn.transaction():
        return [*policy_change.apply(conn, settings.policies), *apply_schedules(conn, settings)]
