"""Dead messages, and the ways back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pgrouse.client.call import Call, binding, binding_of_values
from pgrouse.config.duration import AnyDuration


@dataclass(frozen=True, slots=True)
class FoundDeadMessage:
    """A row of `messages.find_dead`."""

    id: int
    topic: str
    result: str
    error_fingerprint: str | None
    archived_at: datetime


@dataclass(frozen=True, slots=True)
class DeadGroup:
    """A row of `messages.dead_groups`.

    Attributes:
        redriven: how many of them were redriven since.
        trend: how many died in each of 24 equal parts of the period, oldest first.
        silence_id: which silence applies to its alerts; None: none.
    """

    topic: str
    result: str
    error_fingerprint: str | None
    count: int
    redriven: int
    first_seen: datetime
    last_seen: datetime
    sample_id: int
    sample_error: str | None
    trend: list[int]
    at_least: bool
    silence_id: int | None


@dataclass(frozen=True, slots=True)
class Redriven:
    """A row of `messages.redrive`, and of the other ways back.

    Attributes:
        message_id: the id of the new message; None: there is none.
        outcome: redriven, keyless (redriven without its key), superseded, redriven_before, too_often, too_large, or
            not_dead.
    """

    archived_id: int
    message_id: int | None
    outcome: str


@dataclass(frozen=True, slots=True)
class Requeued:
    """A row of `messages.requeue_dead_letters`; archived_id is None where the outcome is not_waiting.

    Attributes:
        message_id: the id of the new message; None: there is none.
        outcome: as of a redrive; not_waiting: it is not a waiting copy.
    """

    copy_id: int
    archived_id: int | None
    message_id: int | None
    outcome: str


@dataclass(frozen=True, slots=True)
class RedrivePreview:
    """A row of `messages.preview_redrive`."""

    archived_id: int
    archived_at: datetime | None
    message_id: int | None
    outcome: str
    place: int | None


@dataclass(frozen=True, slots=True)
class Relative:
    """A row of `messages.lineage`."""

    id: int
    kind: str
    topic: str | None
    state: str | None
    redrives: int | None
    archived_at: datetime | None


@binding_of_values
def dead_topics() -> Call[list[str]]:
    """List the topics that have dead messages."""


@binding
def find_dead(
    topic: str | None = None,
    result: str | None = None,
    fingerprint: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    error: str | None = None,
    limit: int | None = None,
    after: int | None = None,
    redriven: bool | None = None,
) -> Call[list[FoundDeadMessage]]:
    """Find dead messages that match all filters, the oldest first."""


@binding
def dead_groups(
    since: AnyDuration | None = None,
    topic: str | None = None,
    result: str | None = None,
    bars: int | None = None,
    bound: int | None = None,
) -> Call[list[DeadGroup]]:
    """Group the dead messages of a time by topic, result and error."""


@binding
def redrive(
    ids: Sequence[int], rate: float | None = None, delay: AnyDuration | None = None, force: bool | None = None
) -> Call[list[Redriven]]:
    """Put dead messages back."""


@binding
def redrive_where(
    topic: str | None = None,
    result: str | None = None,
    fingerprint: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    error: str | None = None,
    limit: int | None = None,
    rate: float | None = None,
    delay: AnyDuration | None = None,
    force: bool | None = None,
    after: int | None = None,
) -> Call[list[Redriven]]:
    """Put back the dead messages that match all filters."""


@binding
def redrive_edited(
    id: int,
    payload: str | None = None,
    headers: str | None = None,
    topic: str | None = None,
    merge: bool | None = None,
    force: bool | None = None,
) -> Call[list[Redriven]]:
    """Put one dead message back with another payload, other headers or another topic."""


@binding
def preview_redrive(
    ids: Sequence[int], topic: str | None = None, force: bool | None = None, new_payload: bool | None = None
) -> Call[list[RedrivePreview]]:
    """Return what a redrive would do."""


@binding
def requeue_dead_letters(
    ids: Sequence[int], rate: float | None = None, delay: AnyDuration | None = None, force: bool | None = None
) -> Call[list[Requeued]]:
    """Move copies that wait in a `.dlq` topic back to where they died."""


@binding
def lineage(id: int) -> Call[list[Relative]]:
    """List a message with its ancestors and descendants by redrives."""


@binding
def replay(
    topic: str,
    from_: datetime,
    to: datetime,
    limit: int | None = None,
    rate: float | None = None,
    delay: AnyDuration | None = None,
    after: int | None = None,
) -> Call[list[Redriven]]:
    """Publish again what succeeded in a period."""
