"""The difference that a change of policies and schedules makes, setting by setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pgrouse.client.apply import configuration_change, policy_change
from pgrouse.client.apply.schedule_change import ScheduleChange
from pgrouse.config.duration import show
from pgrouse.config.policy.policy_settings import PolicyTable
from pgrouse.config.policy.topic_policy import DesiredPolicy, given_settings
from pgrouse.terminal.command import CliSession

if TYPE_CHECKING:
    import psycopg

    from pgrouse.client.apply.configuration_change import AnyChange
    from pgrouse.client.apply.policy_change import SettingChange


def apply_policies(
    session: CliSession, conn: psycopg.Connection, wanted: Mapping[str, DesiredPolicy], *, dry_run: bool
) -> list[SettingChange]:
    """Write the policies into the database, or only compare; print the difference."""
    changes = policy_change.differences(conn, wanted) if dry_run else policy_change.apply(conn, wanted)
    _say(session, changes, "the policies are up to date: nothing to change", dry_run=dry_run)
    return changes


def apply_configuration(session: CliSession, conn: psycopg.Connection, *, dry_run: bool) -> None:
    """Write the configured policies and schedules into the database, or only compare; print the difference."""
    settings = session.config_with_code
    change = configuration_change.checked_differences if dry_run else configuration_change.apply
    what = "policies and schedules" if settings.schedules else "policies"
    _say(session, change(conn, settings), f"the {what} are up to date: nothing to change", dry_run=dry_run)


def _say(session: CliSession, changes: Sequence[AnyChange], nothing: str, *, dry_run: bool) -> None:
    session.record({"changes": [change_as_json(each) for each in changes], "dry_run": dry_run})
    for each in changes:
        session.say(f"{'would change ' if dry_run else ''}{each}")
    if not changes:
        session.say(nothing)


def change_as_json(change: AnyChange) -> dict[str, Any]:
    """Return a change as JSON has it."""
    if isinstance(change, ScheduleChange):
        return {
            "schedule": change.name,
            "action": change.action,
            "old": _values(change.old),
            "new": _values(change.new),
        }
    return {
        "topic": change.topic,
        "channel": change.channel,
        "setting": change.setting,
        "old": _value(change.old),
        "new": _value(change.new),
    }


def _values(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: show(value) if isinstance(value, timedelta) else value for name, value in row.items()}


def _value(value: Any) -> Any:
    return given_settings(value, type(value)) if isinstance(value, PolicyTable) else value
