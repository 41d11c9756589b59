"""Messages that wait for others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pgrouse.client.call import Call, binding


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A row of `messages.workflow`."""

    direction: str
    id: int
    topic: str | None
    state: str | None
    after_failed: str | None


@dataclass(frozen=True, slots=True)
class EndedPredecessor:
    """A row of `messages.predecessors`; id is None if the message came after none."""

    id: int | None
    redriven_as: int | None
    topic: str | None
    result: str | None
    output: str | None
    error: str | None


@binding
def predecessors(id: int, claim_id: int) -> Call[list[EndedPredecessor]]:
    """Return how the messages ended after which a message was published; no row = its lock was lost."""


@binding
def workflow(id: int) -> Call[list[Neighbour]]:
    """List the predecessors and successors of a message."""


@binding
def unblock(ids: Sequence[int]) -> Call[list[int]]:
    """Release blocked messages; return their ids."""
