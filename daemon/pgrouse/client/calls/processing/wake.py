"""Which workers sleep, which are notified, and when the next message is due."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pgrouse.client.call import Call, binding, binding_of_values

# The same as wait_for_many without a time, for one message, as a `Statement` for every driver. The time is a number of
# microseconds since 1970: drivers convert times in ways of their own.
LOOK = (
    "SELECT f.id, f.state, f.result, f.output, f.error, f.attempts, "
    "(pg_catalog.extract('epoch', f.archived_at) OPERATOR(pg_catalog.*) 1000000)::bigint "
    "FROM messages.wait_for_many(%(ids)s::pg_catalog.text::bigint[]) AS f"
)


@dataclass(frozen=True, slots=True)
class EndOfMessage:
    """The row of `messages.wait_for`."""

    result: str | None
    output_json: str | None
    error: str | None
    attempts: int | None
    archived_at: datetime | None


@dataclass(frozen=True, slots=True)
class StateOfMessage:
    """A row of `messages.wait_for_many`."""

    id: int
    state: str
    result: str | None
    output: str | None
    error: str | None
    attempts: int | None
    archived_at: datetime | None


@binding
def arm(worker: str, topics: Sequence[str], look_in: timedelta) -> Call[None]:
    """Announce that a worker sleeps."""


@binding
def disarm(worker: str) -> Call[None]:
    """Announce that a worker is awake."""


@binding
def lower_armed_until() -> Call[bool]:
    """Lower the time until which publishes look for sleepers; return whether it was lowered."""


@binding
def draw_xid() -> Call[int]:
    """Return the id of this transaction."""


@binding
def oldest_running_xid() -> Call[int]:
    """Return the oldest transaction that still runs: all below it have ended."""


@binding
def next_due(topics: Sequence[str], held_back: str | None = None) -> Call[timedelta | None]:
    """Return how long it is until a message is due, at most 0 if one is; None = none waits for a time."""


@binding_of_values
def ready_topics(topics: Sequence[str]) -> Call[list[str]]:
    """List the topics in which a message is due."""


@binding
def wait_for(id: int, for_: timedelta | None = None) -> Call[EndOfMessage | None]:
    """Return how a message ended, or register that its end is waited for; None = there is no such message."""


@binding
def wait_for_many(ids: Sequence[int], for_: timedelta | None = None) -> Call[list[StateOfMessage]]:
    """Return for each message whether and how it ended."""


@binding
def notify(channel: str, payloads: Sequence[str]) -> Call[bool]:
    """Send notifications; return False if the server has no room for them."""
