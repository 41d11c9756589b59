"""Alerts, their delivery, and what silences them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from pgrouse.client.call import Call, function_call, interval, row_call, rows_call, value
from pgrouse.config.duration import AnyDuration


@dataclass(frozen=True, slots=True)
class Condition:
    """A row of `messages.conditions`."""

    kind: str
    topic: str | None
    since: datetime | None
    what: str
    fix: str | None


@dataclass(frozen=True, slots=True)
class OpenCondition:
    """A row of `messages.open_conditions`."""

    kind: str
    level: str
    topic: str | None
    since: datetime
    what: str
    fix: str


@dataclass(frozen=True, slots=True)
class ClaimedDelivery:
    """The row of `messages.claim_delivery`."""

    held: bool
    fence: int | None
    id: UUID | None
    seq: int | None
    attempt: int | None
    created_at: datetime | None
    message_json: str | None
    wait_s: float | None


def open_conditions() -> Call[list[OpenCondition]]:
    """List what the last tick found wrong, and the breakers that are open."""
    return rows_call("open_conditions", OpenCondition)


def conditions(after: str | None = None, limit: int | None = None) -> Call[list[Condition]]:
    """List what is wrong now, each with a fix."""
    return rows_call("conditions", Condition, after=after, limit=limit)


def silence(
    kind: str | None = None,
    topic: str | None = None,
    error_fingerprint: str | None = None,
    for_: AnyDuration | None = None,
    until: datetime | None = None,
    reason: str | None = None,
) -> Call[int]:
    """Silence the alerts that fit; return the number of the silence."""
    return function_call(
        "silence",
        value,
        kind=kind,
        topic=topic,
        error_fingerprint=error_fingerprint,
        for_=interval(for_, "for"),
        until=until,
        reason=reason,
    )


def unsilence(id: int) -> Call[bool]:
    """End a silence early."""
    return function_call("unsilence", value, id=id)


def replay_alerts(sink: str | None = None, since: AnyDuration | None = None, id: UUID | None = None) -> Call[int]:
    """Send notifications once more."""
    return function_call("replay_alerts", value, sink=sink, since=interval(since, "since"), id=id)


def delete_sink(sink: str) -> Call[bool]:
    """Delete a sink with the notifications that wait for it."""
    return function_call("delete_sink", value, sink=sink)


def claim_delivery(sink: str, type: str, holder: str, rules: str, hold: AnyDuration) -> Call[ClaimedDelivery]:
    """Take the next notification of a sink."""
    return row_call(
        "claim_delivery", ClaimedDelivery, sink=sink, type=type, holder=holder, rules=rules, hold=interval(hold, "hold")
    )


def settle_delivery(
    sink: str,
    fence: int,
    id: UUID,
    error: str | None = None,
    retry_in: AnyDuration | None = None,
    abandon: bool | None = None,
) -> Call[bool]:
    """Record what became of a notification."""
    return function_call(
        "settle_delivery",
        value,
        sink=sink,
        fence=fence,
        id=id,
        error=error,
        retry_in=interval(retry_in, "retry_in"),
        abandon=abandon,
    )
