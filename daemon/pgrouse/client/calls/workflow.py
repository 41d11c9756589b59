"""Messages that wait for others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pgrouse.client.call import Call, bigints, function_call, rows_call, value


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A message before or after another one.

    Attributes:
        direction: before or after.
        state: as in messages.state, or blocked; None = it was not kept.
        after_failed: what happens to the one that waits if the other ends badly.
    """

    direction: str
    id: int
    topic: str | None
    state: str | None
    after_failed: str | None


@dataclass(frozen=True, slots=True)
class EndedPredecessor:
    """How one of the messages ended after which a message was published.

    Attributes:
        id: as its publisher named it; None = the message came after none.
        redriven_as: the message that it became by redrives, whose result this is.
        result: None = nothing is known.
        output: JSON.
    """

    id: int | None
    redriven_as: int | None
    topic: str | None
    result: str | None
    output: str | None
    error: str | None


def predecessors(id: int, claim_id: int) -> Call[list[EndedPredecessor]]:
    """Say how the messages ended after which a message was published; no row: the lock was lost."""
    return rows_call("predecessors", EndedPredecessor, id=id, claim_id=claim_id)


def workflow(id: int) -> Call[list[Neighbour]]:
    """List the predecessors and successors of a message, at most 100 of each."""
    return rows_call("workflow", Neighbour, id=id)


def unblock(ids: Sequence[int]) -> Call[list[int]]:
    """Release blocked messages as if their predecessors had succeeded; the ids of those that were blocked."""
    return function_call("unblock", value, ids=bigints(ids))
