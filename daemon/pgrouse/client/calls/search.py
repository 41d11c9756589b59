"""Pages of messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pgrouse.client.call import Call, Rows, function_call


@dataclass(frozen=True, slots=True)
class FoundMessage:
    """A message of a page.

    Attributes:
        state: as in messages.state.
        worker: which one has it, or had it last.
        preview: the first characters of the payload.
    """

    id: int
    topic: str
    channel: str | None
    key: str | None
    priority: int
    state: str
    attempts: int
    redrives: int
    created_at: datetime
    available_at: datetime
    worker: str | None
    locked_at: datetime | None
    lock_expires_at: datetime | None
    archived_at: datetime | None
    error: str | None
    error_fingerprint: str | None
    preview: str | None


@dataclass(frozen=True, slots=True)
class FoundPage:
    """A page.

    Attributes:
        examined: how many messages were examined.
        reached: the time of the last of those.
        place: where the next page begins, for after; None = there is none.
    """

    messages: list[FoundMessage]
    examined: int
    reached: datetime | None
    place: str | None


_COLUMNS = ", ".join(f"f.{name}" for name in FoundMessage.__dataclass_fields__)


def find_messages(
    topic: str | None = None,
    states: Sequence[str] | None = None,
    channel: str | None = None,
    key: str | None = None,
    error: str | None = None,
    fingerprint: str | None = None,
    path: str | None = None,
    value: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    topics: Sequence[str] | None = None,
    limit: int | None = None,
    after: str | None = None,
    max_examined: int | None = None,
    preview: int | None = None,
    headers: str | None = None,
    worker: str | None = None,
    attempts: int | None = None,
) -> Call[FoundPage]:
    """Find messages that fit all filters, page by page.

    Args:
        topic: of this topic.
        states: in one of these states: ready, delayed, retrying, running, and results.
        channel: of this channel.
        key: with this key.
        error: with this text in the error, whatever its case.
        fingerprint: with this error_fingerprint.
        path: a jsonpath that matches in the payload.
        value: JSON that the match is equal to.
        since: ended, or published, at this time or later.
        until: before this time.
        topics: patterns of LIKE; the topic fits one.
        limit: at most so many; 50 unless given.
        after: the place of the page before, JSON.
        max_examined: how many messages are examined; 20,000 unless given.
        preview: how many characters of each payload are shown; none unless given.
        headers: a JSON object that the headers contain.
        worker: that runs the message, or ended it.
        attempts: the message has had at least so many.
    """
    return function_call(
        "find_messages",
        _page,
        f"{_COLUMNS}, f.examined, f.place::pg_catalog.text",
        topic=topic,
        states=None if states is None else list(states),
        channel=channel,
        key=key,
        error=error,
        fingerprint=fingerprint,
        path=path,
        value=value,
        since=since,
        until=until,
        topics=None if topics is None else list(topics),
        limit=limit,
        after=after,
        max_examined=max_examined,
        preview=preview,
        headers=headers,
        worker=worker,
        attempts=attempts,
    )


def _page(rows: Rows) -> FoundPage:
    # The last row is about the page: its id is NULL, and its created_at the time of the last message that was looked at.
    *found, (*end, examined, place) = rows
    reached = end[list(FoundMessage.__dataclass_fields__).index("created_at")]
    return FoundPage([FoundMessage(*row[:-2]) for row in found], examined, reached, place)
