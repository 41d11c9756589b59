"""Pages of messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pgrouse.client.call import Call, Rows, binding_read_by


@dataclass(frozen=True, slots=True)
class ListedMessage:
    """A message of a list.

    Attributes:
        state: ready, delayed, blocked, retrying, waiting (for an event) or running; of one that ended, its result.
        worker: the worker that runs it, or ran it last.
        lock_expires_at: until when the worker has it unless it extends the lock.
    """

    id: int
    topic: str
    channel: str | None
    key: str | None
    priority: int
    state: str
    attempts: int
    created_at: datetime
    available_at: datetime
    worker: str | None
    lock_expires_at: datetime | None
    archived_at: datetime | None


@dataclass(frozen=True, slots=True)
class FoundMessage(ListedMessage):
    """A row of `messages.find_messages`.

    Attributes:
        redrives: how often it was redriven.
        locked_at: when the last attempt claimed it.
    """

    redrives: int
    locked_at: datetime | None
    error: str | None
    error_fingerprint: str | None
    preview: str | None


@dataclass(frozen=True, slots=True)
class FoundPage:
    """A page of messages, and what the last row of `messages.find_messages` says.

    Attributes:
        examined: how many messages were examined.
        reached: the time of the last of those.
        place: `after` of the next page; None = there is none.
    """

    messages: list[FoundMessage]
    examined: int
    reached: datetime | None
    place: str | None


FOUND = tuple(FoundMessage.__dataclass_fields__)
COLUMNS = ", ".join(f"f.{name}" for name in FOUND)


def _page(rows: Rows) -> FoundPage:
    # The last row is about the page: its id is NULL, and its created_at the time of the last message that was looked
    # at.
    *found, (*end, examined, place) = rows
    reached = end[FOUND.index("created_at")]
    return FoundPage([FoundMessage(*row[:-2]) for row in found], examined, reached, place)


@binding_read_by(_page, f"{COLUMNS}, f.examined, f.place::pg_catalog.text")
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
    batch_id: int | None = None,
) -> Call[FoundPage]:
    """Find messages that match all filters, page by page."""
