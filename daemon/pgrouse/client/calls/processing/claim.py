"""Claims, and what they read from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pgrouse.client.call import Call, Rows, function_call, integers, names, value
from pgrouse.client.calls.processing.settle import COMPLETE
from pgrouse.client.message import COLUMNS, WIDTH, Message, read_messages

# One statement for all claims, so that it is prepared once.
OTHER_ARGUMENTS = (
    "%s::pg_catalog.text[], %s, %s::pg_catalog.int4[], %s::pg_catalog.int8, %s::pg_catalog.interval, %s,"
    " %s::pg_catalog.jsonb, %s::pg_catalog.int4, %s::pg_catalog.int4[], %s"
)
CLAIM = f"SELECT {COLUMNS} FROM messages.claim(%s, {OTHER_ARGUMENTS}) AS f".encode()  # noqa: S608 - names of fields
# The snapshot of this statement is older than those of the claim, which looks by statements of its own: it sees what
# ended before.
LEFT = "f.held_back::pg_catalog.text, f.next_due_s, CASE WHEN f.id IS NULL THEN messages.oldest_running_xid() END"
PLACES = f"{OTHER_ARGUMENTS}, %s, %s::pg_catalog.int8"
CLAIM_WITH_NEXT_DUE, CLAIM_WITHOUT_FLUSH = (
    f"SELECT {COLUMNS}, {LEFT} "  # noqa: S608 - names of fields
    f"FROM messages.claim_with_next_due({worker}, {PLACES}) AS f".encode()
    for worker in (
        "%s",
        # Its transaction does not wait for the disk, unless the claim says otherwise: that begins when its arguments
        # are known.
        "CASE WHEN pg_catalog.set_config('synchronous_commit', 'off', true) OPERATOR(pg_catalog.=) 'off' THEN %s END",
    )
)
# The claim begins when the completion is done, for its first argument needs that. Its last row also has what was lost.
COMPLETE_AND_CLAIM = (
    f"SELECT {COLUMNS}, {LEFT}, CASE WHEN f.id IS NULL THEN c.lost END "  # noqa: S608 - names of fields
    f"FROM ({COMPLETE.decode()} AS lost OFFSET 0) AS c CROSS JOIN LATERAL "
    f"messages.claim_with_next_due(CASE WHEN c.lost IS NOT NULL THEN %s END, {PLACES}) AS f"
).encode()


@dataclass(frozen=True, slots=True)
class Claimed:
    """What a claim returned: its messages, and what its last row says of the rest.

    Attributes:
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
    """Lock ready messages for a worker."""
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
    message_id: int | None = None,
) -> Call[Claimed]:
    """Lock ready messages for a worker, and say what limits held back and when the next message is due."""
    places = _places(slots, bytes, lock_duration, after_topic, after_channels, start, integers(prefetch))
    flags = contents is not False, look_ahead is not False
    return Call(CLAIM_WITH_NEXT_DUE, [worker, names(topics), limit, *places, *flags, message_id], _read_claimed)


def count_ready(topics: Sequence[str]) -> Call[int]:
    """Count the messages that are ready."""
    return function_call("count_ready", value, topics=list(topics))


def raise_low_water(slow: timedelta | None = None) -> Call[int]:
    """Raise the marks from which claims read."""
    return function_call("raise_low_water", value, slow=slow)


def _places(slots: Sequence[int | None] | None, *others: Any) -> list[Any]:
    return [integers(slots), *others]


def _read_claimed(rows: Rows) -> Claimed:
    # The last row is no message: it says what the claim left.
    held_back, next_due_s, oldest_xid, *_ = rows[-1][WIDTH:]
    return Claimed(read_messages(rows[:-1]), held_back, next_due_s, oldest_xid)
