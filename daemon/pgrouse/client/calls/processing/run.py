"""What a worker reports and asks while a handler runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from pgrouse.client.call import Call, bigints, binding, function_call, value
from pgrouse.client.message import COLUMNS, Message, read_messages

SET_PROGRESS = (
    b"SELECT messages.set_progress(%s::pg_catalog.int8[], %s::pg_catalog.int8[], "
    b"%s::pg_catalog.text[]::pg_catalog.jsonb[], %s)"
)


class ClaimRef(NamedTuple):
    """A message, and the claim that holds it."""

    id: int
    claim_id: int


class ArchivedResult(NamedTuple):
    """A message that has ended, and its result."""

    id: int
    result: str


class SavedStep(NamedTuple):
    """A row of `messages.load_steps`; without a name: the lock is held and nothing was saved."""

    name: str | None
    result: str | None


@binding
def heartbeat(ids: Sequence[int], claim_ids: Sequence[int], lock_duration: timedelta | None = None) -> Call[list[int]]:
    """Extend locks; return the ids whose lock was lost."""


def set_progress(
    ids: Sequence[int], claim_ids: Sequence[int], progress: Sequence[str], wait: bool | None = None
) -> Call[list[int]]:
    """Store the progress of messages; return the ids whose lock was lost."""
    return Call(SET_PROGRESS, [bigints(ids), bigints(claim_ids), list(progress), wait is not False], value)


@binding
def cancelled_ids(ids: Sequence[int], claim_ids: Sequence[int]) -> Call[list[int]]:
    """Return which of the messages with a lost lock were cancelled."""


@binding
def count_runs(ids: Sequence[int], claim_ids: Sequence[int]) -> Call[None]:
    """Count the run of messages that waited in the worker and have started."""


@binding
def claimed_ids(claim_ids: Sequence[int]) -> Call[list[ClaimRef]]:
    """List the messages that some claims still hold."""


def read_claimed(ids: Sequence[int], claim_ids: Sequence[int]) -> Call[list[Message]]:
    """Read messages again that their claims still hold."""
    return function_call("read_claimed", read_messages, COLUMNS, ids=bigints(ids), claim_ids=bigints(claim_ids))


@binding
def results(ids: Sequence[int], claim_ids: Sequence[int]) -> Call[list[ArchivedResult]]:
    """List the messages that ended under their claims."""


@binding
def save_step(id: int, claim_id: int, name: str, result: str) -> Call[bool]:
    """Store the result of a step; return False if the lock was lost."""


@binding
def save_logs(
    ids: Sequence[int], claim_ids: Sequence[int], lines: Sequence[str], left_out: Sequence[int] | None = None
) -> Call[list[int]]:
    """Store the log lines of attempts; return the ids whose lock was lost."""


@binding
def load_steps(id: int, claim_id: int, name: str | None = None) -> Call[list[SavedStep]]:
    """Load the steps of a message; no row = its lock was lost."""
