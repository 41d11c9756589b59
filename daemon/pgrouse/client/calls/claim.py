"""Claims, and what they read from."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from pgrouse.client.call import Call, function_call, value
from pgrouse.client.message import COLUMNS, Message, read_messages

# One statement for all claims, so that it is prepared once.
CLAIM = (
    f"SELECT {COLUMNS} FROM messages.claim(%s, %s::pg_catalog.text[], %s, %s::pg_catalog.int4[], %s::pg_catalog.int8,"  # noqa: S608 - names of fields
    " %s::pg_catalog.interval, %s, %s::pg_catalog.jsonb, %s::pg_catalog.int4, %s) AS f"
).encode()


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
        contents: whether payloads, bodies, headers and states are returned; they are unless given.
    """
    places = [None if slots is None else list(slots), bytes, lock_duration, after_topic, after_channels, start]
    return Call(CLAIM, [worker, list(topics), limit, *places, contents is not False], read_messages)


def count_ready(topics: Sequence[str]) -> Call[int]:
    """Count the messages of some topics that are ready."""
    return function_call("count_ready", value, topics=list(topics))


def raise_low_water(slow: timedelta | None = None) -> Call[int]:
    """Move the marks from which claims read; how many there are."""
    return function_call("raise_low_water", value, slow=slow)
