"""Alerts, their delivery, and what silences them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from pgrouse.client.call import Call, binding
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
    """A row of `messages.open_conditions`.

    Attributes:
        kind: what is wrong, like no_worker.
        severity: page or ticket.
        topic: the topic that it is about; None: it is about none.
        since: when it began.
        count: how many messages it is about; None: it is not about messages, or they were not counted yet.
        what: what is wrong, as a sentence.
        fix: what to do.
    """

    kind: str
    severity: str
    topic: str | None
    since: datetime
    count: int | None
    what: str
    fix: str


@dataclass(frozen=True, slots=True)
class IncidentRow:
    """A row of `messages.incidents`.

    Attributes:
        kind: what is wrong, like no_worker, or dead_message: a group of dead messages.
        severity: page or ticket.
        state: firing, silenced or over.
        began_at: when it began; of a group, its first death.
        ended_at: when it ended; None: it goes on.
        count: how many messages it is about; None: it is not about messages, or they were not counted yet.
        what: what is wrong, as a sentence; of a group, the error.
        fix: what to do; None: it is a group.
        sinks: the sinks that were told.
        unsent: how many dead messages they were not told of yet.
        notified_at: when a sink was told last.
        first_message_id: the first message of a group.
    """

    kind: str
    severity: str
    topic: str | None
    result: str | None
    error_fingerprint: str | None
    state: str
    began_at: datetime
    ended_at: datetime | None
    count: int | None
    what: str | None
    fix: str | None
    sinks: list[str]
    unsent: int
    notified_at: datetime | None
    first_message_id: int | None


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


@binding
def open_conditions(
    topics: Sequence[str] | None = None, limit: int | None = None, silenced: bool | None = None
) -> Call[list[OpenCondition]]:
    """List the problems that are open, the worst first: what the last tick found wrong, and what is known at once."""


@binding
def incidents(
    topics: Sequence[str] | None = None, over: bool | None = None, limit: int | None = None
) -> Call[list[IncidentRow]]:
    """List the incidents, each from its begin to its end, the worst first."""


@binding
def conditions(after: str | None = None, limit: int | None = None) -> Call[list[Condition]]:
    """List what is wrong now, each with a fix."""


@binding
def silence(
    kind: str | None = None,
    topic: str | None = None,
    error_fingerprint: str | None = None,
    for_: AnyDuration | None = None,
    until: datetime | None = None,
    reason: str | None = None,
) -> Call[int]:
    """Silence the alerts that fit; return the number of the silence."""


@binding
def unsilence(id: int) -> Call[bool]:
    """End a silence early."""


@binding
def replay_alerts(sink: str | None = None, since: AnyDuration | None = None, id: UUID | None = None) -> Call[int]:
    """Send notifications once more."""


@binding
def delete_sink(sink: str) -> Call[bool]:
    """Delete a sink with the notifications that wait for it."""


@binding
def claim_delivery(sink: str, type: str, holder: str, rules: str, hold: AnyDuration) -> Call[ClaimedDelivery]:
    """Take the next notification of a sink."""


@binding
def alerting_problem() -> Call[str | None]:
    """Say what keeps alerts from being raised or delivered; None: nothing."""


@binding
def settle_delivery(
    sink: str,
    fence: int,
    id: UUID,
    error: str | None = None,
    retry_in: AnyDuration | None = None,
    abandon: bool | None = None,
) -> Call[bool]:
    """Record what became of a notification."""
