"""Claims, and what they read from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pgrouse.client.call import Call, Rows, function_call, integers, names, value
from pgrouse.client.message import COLUMNS, Message, read_messages

# One statement for all claims, so that it is prepared once.
OTHER_ARGUMENTS = (
    "%s::pg_catalog.text[], %s, %s::pg_catalog.int4[], %s::pg_catalog.int8, %s::pg_catalog.interval, %s,"
    " %s::pg_catalog.jsonb, %s::pg_catalog.int4, %s::pg_catalog.int4[], %s"
)
CLAIM = f"SELECT {COLUMNS} FROM messages.claim(%s, {OTHER_ARGUMENTS}) AS f".encode()  # noqa: S608 - names of fields
# The snapshot of this statement is older than those of the claim, which looks by statements of its own: it sees what ended before.
LEFT = "f.held_back::pg_catalog.text, f.next_due_s, CASE WHEN f.id IS NULL THEN messages.oldest_running_xid() END"
CLAIM_WITH_NEXT_DUE, CLAIM_WITHOUT_FLUSH = (
    f"SELECT {COLUMNS}, {LEFT} FROM messages.claim_with_next_due({worker}, {OTHER_ARGUMENTS}, %s) AS f".encode()  # noqa: S608
    for worker in (
        "%s",
        # Its transaction does not wait for the disk, unless the claim says otherwise: that begins when its arguments are known.
        "CASE WHEN pg_catalog.set_config('synchronous_commit', 'off', true) OPERATOR(pg_catalog.=) 'off' THEN %s END",
    )
)


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a claim returned.

    Attributes:
        messages: in the order in which they were claimed.
        held_back_json: what was skipped because of limits and pauses, and when to look again; None = nothing.
        next_due_s: the seconds until a message is due; None = none waits for a time, or something was claimed.
        oldest_xid: all transactions below it had ended before the claim.
    """

    messages: list[Message]
    held_back_json: str | None
    next_due_s: float | None
    oldest_xid: int


def claim(
    worker: str,
    topics: Sequence[str],
    limit: int,
    slots: Sequence[int | None] | None = None,
    bytes: int | None = None,
    lock_duration: timedelta | None = None,
    after_topic: str | None = None,
    after_channels: str | None = None,
    start: int | None = None,
    prefetch: Sequence[int] | None = None,
    contents: bool | None = None,
) -> Call[list[Message]]:
    """Lock ready messages for a worker.

    Args:
        worker: its name.
        topics: those that it has capacity for.
        limit: at most so many messages.
        slots: at most so many of each topic; None = no limit of its own.
        bytes: the claim ends with the message that reaches so many; 16 MiB unless given.
        lock_duration: instead of the topic's.
        after_topic: where the last claim ended; unless given the server remembers it.
        after_channels: the channel at which it ended in each topic, JSON.
        start: how many start at once; the others wait in the worker, and their run is not counted yet. None = all start.
        prefetch: how many of the slots of each topic are for messages that would wait in the worker; none where a topic or its channels have a
            limit. None = none are.
        contents: whether payloads, bodies, headers and states are returned; they are unless given.
    """
    places = _places(slots, bytes, lock_duration, after_topic, after_channels, start, integers(prefetch))
    return Call(CLAIM, [worker, names(topics), limit, *places, contents is not False], read_messages)


def claim_with_next_due(
    worker: str,
    topics: Sequence[str],
    limit: int,
    slots: Sequence[int | None] | None = None,
    bytes: int | None = None,
    lock_duration: timedelta | None = None,
    after_topic: str | None = None,
    after_channels: str | None = None,
    start: int | None = None,
    prefetch: Sequence[int] | None = None,
    contents: bool | None = None,
    look_ahead: bool | None = None,
) -> Call[Claimed]:
    """Do the same as claim, and say what limits held back and when the next message is due.

    Args:
        worker: as of claim.
        topics: as of claim.
        limit: as of claim.
        slots: as of claim.
        bytes: as of claim.
        lock_duration: as of claim.
        after_topic: as of claim.
        after_channels: as of claim.
        start: as of claim.
        prefetch: as of claim.
        contents: as of claim.
        look_ahead: whether to look for the next message that is due; unless given it does.
    """
    places = _places(slots, bytes, lock_duration, after_topic, after_channels, start, integers(prefetch))
    flags = contents is not False, look_ahead is not False
    return Call(CLAIM_WITH_NEXT_DUE, [worker, names(topics), limit, *places, *flags], _read_claimed)


def count_ready(topics: Sequence[str]) -> Call[int]:
    """Count the messages of some topics that are ready."""
    return function_call("count_ready", value, topics=list(topics))


def raise_low_water(slow: timedelta | None = None) -> Call[int]:
    """Move the marks from which claims read; how many there are."""
    return function_call("raise_low_water", value, slow=slow)


def _places(slots: Sequence[int | None] | None, *others: Any) -> list[Any]:
    return [integers(slots), *others]


def _read_claimed(rows: Rows) -> Claimed:
    # The last row is no message: it says what the claim left.
    (*_, held_back, next_due_s, oldest_xid) = rows[-1]
    return Claimed(read_messages(rows[:-1]), held_back, next_due_s, oldest_xid)
