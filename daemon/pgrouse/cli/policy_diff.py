"""The difference that a change of policies makes, setting by setting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pgrouse.cli.command import CliSession
from pgrouse.client import policy_change
from pgrouse.config.policy_settings import PolicyTable
from pgrouse.config.topic_policy import DesiredPolicy, given_settings

if TYPE_CHECKING:
    import psycopg

    from pgrouse.client.policy_change import SettingChange


def apply_policies(
    session: CliSession, conn: psycopg.Connection, wanted: Mapping[str, DesiredPolicy], *, dry_run: bool
) -> list[SettingChange]:
    """Write the policies into the database, or only compare; print the difference."""
    changes = policy_change.differences(conn, wanted) if dry_run else policy_change.apply(conn, wanted)
    if session.as_json:
        session.output.record({"changes": [change_as_json(each) for each in changes], "dry_run": dry_run})
    for each in changes:
        session.output.say(f"{'would change ' if dry_run else ''}{each}")
    if not changes:
        session.output.say("the policies are up to date: nothing to change")
    return changes


def change_as_json(change: SettingChange) -> dict[str, Any]:
    """Return a change as JSON has it."""
    return {
        "topic": change.topic,
        "channel": change.channel,
        "setting": change.setting,
        "old": _value(change.old),
        "new": _value(change.new),
    }


def _value(value: Any) -> Any:
    return given_settings(value, type(value)) if isinstance(value, PolicyTable) else value
