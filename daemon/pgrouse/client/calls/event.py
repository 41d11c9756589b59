"""Events that messages wait for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from pgrouse.client.call import Call, binding


class SavedEvent(NamedTuple):
    """A row of `messages.load_events`; without a name: the lock is held, and there is none. JSON is text."""

    name: str | None
    payload: str | None
    timed_out: bool | None


@binding
def signal(id: int, name: str, payload: str | None = None, number: int | None = None) -> Call[int | None]:
    """Signal an event to a message; return its id, or None if it has ended."""


@binding
def signal_key(
    topic: str, key: str, name: str, payload: str | None = None, number: int | None = None
) -> Call[int | None]:
    """Signal an event to the message of a topic with a key; return its id, or None if there is none."""


@binding
def sign_signal(id: int, name: str, until: datetime, number: int | None = None) -> Call[str]:
    """Return the signature of a URL that signals one event to one message."""


@binding
def check_signal(id: int, name: str, until: int, number: int, signature: str) -> Call[str]:
    """Return what such a URL is worth: valid, used, over, ended or invalid."""


@binding
def load_events(id: int, claim_id: int) -> Call[list[SavedEvent]]:
    """Load the events of a message; no row = its lock was lost."""


@binding
def wait_for_event(
    ids: Sequence[int],
    claim_ids: Sequence[int],
    names: Sequence[str],
    numbers: Sequence[int],
    timeouts: Sequence[timedelta | None] | None = None,
) -> Call[list[int]]:
    """Release messages until they get their events; return the ids of those whose lock was lost."""
