"""What a change of policies does, knob by knob."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pgrouse.cli.command import Session
from pgrouse.config.topic_policy import Knobs, Wanted, named

if TYPE_CHECKING:
    import psycopg

    from pgrouse.client.policy_change import Change


def put(session: Session, conn: psycopg.Connection, wanted: Mapping[str, Wanted], *, dry_run: bool) -> list[Change]:
    """Make the database hold what is wanted, or only say what that would change; print the difference."""
    from pgrouse.client import policy_change  # noqa: PLC0415

    changes = policy_change.differences(conn, wanted) if dry_run else policy_change.apply(conn, wanted)
    if session.as_json:
        session.output.record({"changes": [plain(each) for each in changes], "dry_run": dry_run})
    for each in changes:
        session.output.say(f"{'would change ' if dry_run else ''}{each}")
    if not changes:
        session.output.say("the policies are as they shall be: nothing to change")
    return changes


def plain(change: Change) -> dict[str, Any]:
    """Return a change as JSON has it."""
    return {
        "topic": change.topic,
        "channel": change.channel,
        "knob": change.knob,
        "old": _value(change.old),
        "new": _value(change.new),
    }


def _value(value: Any) -> Any:
    return named(value, type(value)) if isinstance(value, Knobs) else value
