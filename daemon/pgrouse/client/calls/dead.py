"""Dead messages, and the ways back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pgrouse.client.call import Call, bigints, function_call, interval, rows_call, values
from pgrouse.config.duration import AnyDuration


@dataclass(frozen=True, slots=True)
class FoundDeadMessage:
    """A dead message, as a list shows it."""

    id: int
    topic: str
    result: str
    error_fingerprint: str | None
    archived_at: datetime


@dataclass(frozen=True, slots=True)
class DeadGroup:
    """Dead messages of one topic, result and fingerprint.

    Attributes:
        redriven: how many of them were put back.
        sample_id: the latest of them; sample_error is its error.
        trend: how many died in each part of the time, the oldest first.
        at_least: whether there are more than were looked at.
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


@dataclass(frozen=True, slots=True)
class Redriven:
    """What became of one message that was to be put back or replayed.

    Attributes:
        archived_id: the message of the archive.
        message_id: the new message, or the one because of which there is none.
        outcome: redriven, keyless, superseded, redriven_before, too_often, too_large, not_dead; replayed, no_payload.
    """

    archived_id: int
    message_id: int | None
    outcome: str


@dataclass(frozen=True, slots=True)
class Requeued:
    """What became of one copy in a `.dlq` topic.

    Attributes:
        copy_id: the copy.
        archived_id: its original; None where the outcome is not_waiting.
        message_id: as of Redriven.
        outcome: of the original, as of Redriven; or not_waiting.
    """

    copy_id: int
    archived_id: int | None
    message_id: int | None
    outcome: str


@dataclass(frozen=True, slots=True)
class RedrivePreview:
    """What a redrive would do with one message.

    Attributes:
        archived_at: None = only its copy in a `.dlq` topic is left.
        message_id: the message because of which it stays dead.
        outcome: as of Redriven.
        place: its position among those that would be put back.
    """

    archived_id: int
    archived_at: datetime | None
    message_id: int | None
    outcome: str
    place: int | None


@dataclass(frozen=True, slots=True)
class Relative:
    """A message, or one that it was redriven from or as.

    Attributes:
        kind: ancestor, this, descendant, or copy (the one in a `.dlq` topic).
        state: as in messages.state; None = it has left the archive.
    """

    id: int
    kind: str
    topic: str | None
    state: str | None
    redrives: int | None
    archived_at: datetime | None


def dead_topics() -> Call[list[str]]:
    """List the topics that have dead messages."""
    return function_call("dead_topics", values)


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
    """Find dead messages that fit all filters, the oldest first.

    Args:
        topic: of this topic.
        result: with this result.
        fingerprint: with this error_fingerprint.
        since: that died at this time or later.
        until: that died before this time.
        error: with this text in the error, whatever its case.
        limit: at most so many; 1,000 unless given.
        after: the last id of the page before.
        redriven: those too that were put back since.
    """
    return rows_call(
        "find_dead",
        FoundDeadMessage,
        topic=topic,
        result=result,
        fingerprint=fingerprint,
        since=since,
        until=until,
        error=error,
        limit=limit,
        after=after,
        redriven=redriven,
    )


def dead_groups(
    since: AnyDuration | None = None,
    topic: str | None = None,
    result: str | None = None,
    bars: int | None = None,
    bound: int | None = None,
) -> Call[list[DeadGroup]]:
    """Group the dead messages of a time, 7 days unless given.

    Args:
        since: so long until now.
        topic: of this topic.
        result: with this result.
        bars: how many parts the trend has; 24 unless given.
        bound: how many of each topic are looked at; 2,000 unless given.
    """
    return rows_call(
        "dead_groups", DeadGroup, since=interval(since, "since"), topic=topic, result=result, bars=bars, bound=bound
    )


def redrive(
    ids: Sequence[int], rate: float | None = None, delay: AnyDuration | None = None, force: bool | None = None
) -> Call[list[Redriven]]:
    """Put dead messages back.

    Args:
        ids: which.
        rate: so many a second become available; None = all at once.
        delay: how long from now the first one does.
        force: also those that were redriven as often as max_redrives allows.
    """
    return rows_call("redrive", Redriven, ids=bigints(ids), rate=rate, delay=interval(delay, "delay"), force=force)


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
    """Put back the dead messages that fit all filters: those of find_dead; the rest is as of redrive."""
    return rows_call(
        "redrive_where",
        Redriven,
        topic=topic,
        result=result,
        fingerprint=fingerprint,
        since=since,
        until=until,
        error=error,
        limit=limit,
        rate=rate,
        delay=interval(delay, "delay"),
        force=force,
        after=after,
    )


def redrive_edited(
    id: int,
    payload: str | None = None,
    headers: str | None = None,
    topic: str | None = None,
    merge: bool | None = None,
    force: bool | None = None,
) -> Call[list[Redriven]]:
    """Put one dead message back with another payload, other headers (both JSON) or another topic.

    Args:
        id: which.
        payload: the new one; None leaves the old.
        headers: the new ones; None leaves the old.
        topic: where to; None = where it died.
        merge: whether payload and headers are merged into the old ones, which they are unless this is False.
        force: also if it was redriven as often as max_redrives allows.
    """
    return rows_call(
        "redrive_edited", Redriven, id=id, payload=payload, headers=headers, topic=topic, merge=merge, force=force
    )


def preview_redrive(
    ids: Sequence[int], topic: str | None = None, force: bool | None = None
) -> Call[list[RedrivePreview]]:
    """Tell what redrive would do; topic: where to, instead of where they died."""
    return rows_call("preview_redrive", RedrivePreview, ids=bigints(ids), topic=topic, force=force)


def requeue_dead_letters(
    ids: Sequence[int], rate: float | None = None, delay: AnyDuration | None = None, force: bool | None = None
) -> Call[list[Requeued]]:
    """Move copies that wait in a `.dlq` topic back to where they died; the rest is as of redrive."""
    return rows_call(
        "requeue_dead_letters", Requeued, ids=bigints(ids), rate=rate, delay=interval(delay, "delay"), force=force
    )


def lineage(id: int) -> Call[list[Relative]]:
    """List a message with its ancestors and descendants by redrives."""
    return rows_call("lineage", Relative, id=id)


def replay(
    topic: str,
    from_: datetime,
    to: datetime,
    limit: int | None = None,
    rate: float | None = None,
    delay: AnyDuration | None = None,
    after: int | None = None,
) -> Call[list[Redriven]]:
    """Publish again what succeeded from a time on and before another, the oldest first.

    Args:
        topic: of which topic.
        from_: from when on.
        to: before when.
        limit: at most so many; 1,000 unless given.
        rate: so many a second become available; None = all at once.
        delay: how long from now the first one does.
        after: the last archived_id of the page before.
    """
    return rows_call(
        "replay",
        Redriven,
        topic=topic,
        from_=from_,
        to=to,
        limit=limit,
        rate=rate,
        delay=interval(delay, "delay"),
        after=after,
    )
