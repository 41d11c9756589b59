"""Messages that wait for others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pgrouse.client.call import Call, binding

# How many messages of one workflow are read at most.
MAX_MESSAGES = 10_000


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


@dataclass(frozen=True, slots=True)
class WorkflowMessage:
    """A message of a workflow; one that was redriven is replaced by what it became.

    Attributes:
        after: the messages that it comes after, as they are in this workflow.
        workflow_id: the workflow that it belongs to; None: it comes after none.
        topic: None: nothing of the message is kept.
        state: its state, or blocked: it waits for others; None: nothing of the message is kept.
        is_held: whether it waits for a message that did not succeed.
    """

    id: int
    after: Sequence[int]
    workflow_id: int | None
    topic: str | None
    state: str | None
    attempts: int | None
    created_at: datetime | None
    archived_at: datetime | None
    batch_id: int | None
    is_held: bool

    @property
    def is_live(self) -> bool:
        """Whether it has not ended."""
        return self.topic is not None and self.archived_at is None


@binding
def workflow_messages(
    id: int, topics: Sequence[str] | None = None, limit: int | None = None
) -> Call[list[WorkflowMessage]]:
    """Return the messages of a workflow: the latest, of these topics."""


@binding
def predecessors(id: int, claim_id: int) -> Call[list[EndedPredecessor]]:
    """Return how the messages ended after which a message was published; no row = its lock was lost."""


@binding
def workflow(id: int) -> Call[list[Neighbour]]:
    """List the predecessors and successors of a message."""


@binding
def unblock(ids: Sequence[int]) -> Call[list[int]]:
    """Release blocked messages; return their ids."""
