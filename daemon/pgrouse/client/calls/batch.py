"""Batches: messages whose ends are counted together."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pgrouse.client.call import Call, binding, decoded
from pgrouse.client.calls.dead import Redriven
from pgrouse.config.duration import AnyDuration


@dataclass(frozen=True, slots=True)
class BatchState:
    """A batch, and what became of its messages.

    Attributes:
        id: what a publish names as `batch`.
        state: open; closed, while messages of it have not ended; cancelled, the same after its cancellation; finished.
        total: how many messages it has.
        live: how many of them have not ended.
        succeeded: how many succeeded.
        dead: how many died, without those that were redriven.
        cancelled: how many were cancelled.
        created_by: the role or the token that created it.
        finished_at: when it was closed and all its messages had ended.
        first_ended_at: when the first of its messages ended.
        last_ended_at: when the latest of its messages ended.
        estimated_end: when the last message ends, if the rest takes as long as what has ended; None: not known, or
            finished.
        callbacks_json: by event, the topic, and the id of the message that was published there; `callbacks` is decoded.
    """

    id: int
    name: str | None
    state: str
    total: int
    live: int
    succeeded: int
    dead: int
    cancelled: int
    created_at: datetime
    created_by: str
    closed_at: datetime | None
    cancelled_at: datetime | None
    finished_at: datetime | None
    first_ended_at: datetime | None
    last_ended_at: datetime | None
    estimated_end: datetime | None
    callbacks_json: str | None

    callbacks = decoded("callbacks_json")


@dataclass(frozen=True, slots=True)
class BatchProgress(BatchState):
    """A row of `messages.batch_progress`.

    Attributes:
        metadata_json: what its creator said of it; `metadata` is decoded.
    """

    metadata_json: str | None = None

    metadata = decoded("metadata_json")


@binding
def create_batch(
    name: str | None = None,
    on_finish: str | None = None,
    on_failure: str | None = None,
    on_success: str | None = None,
    metadata: str | None = None,
) -> Call[int]:
    """Create a batch, and return its id. metadata: a JSON object as text."""


@binding
def close_batch(id: int) -> Call[bool]:
    """Close a batch; return whether it was open."""


@binding
def cancel_batch(id: int, reason: str | None = None, limit: int | None = None) -> Call[int]:
    """Cancel messages of a batch, 1,000 unless given; return how many. 0: none is left."""


@binding
def redrive_batch(
    id: int,
    limit: int | None = None,
    rate: float | None = None,
    delay: AnyDuration | None = None,
    force: bool | None = None,
    after: int | None = None,
) -> Call[list[Redriven]]:
    """Put dead messages of a batch back, the oldest first, 1,000 unless given. rate: messages a second."""


@binding
def batch_progress(id: int) -> Call[BatchProgress | None]:
    """Return the state and the counts of a batch; None: there is none, or it is another role's."""
