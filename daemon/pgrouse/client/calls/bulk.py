"""Publishing in bulk: what tasks stage by COPY is published by one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from pgrouse.client.call import Call, binding


@dataclass(frozen=True, slots=True)
class StagedResult:
    """The row of `messages.publish_staged`."""

    published: int
    ignored: int
    dropped: int
    rejected: int
    published_at: datetime
    is_repeat: bool


@dataclass(frozen=True, slots=True)
class PublishedJob:
    """The row of `messages.job_result`."""

    published: int
    ignored: int
    dropped: int
    rejected: int
    published_at: datetime


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """A row of `messages.job_rejected`."""

    nth: int
    reason: str
    given_json: str


@binding
def begin_staging(job: str) -> Call[UUID | None]:
    """Begin to stage rows of a job; None = it was published before."""


@binding
def publish_staged(
    job: str, attempts: Sequence[UUID], counts: Sequence[int], max_rejected: int | None = None
) -> Call[StagedResult]:
    """Publish what was staged for a job."""


@binding
def delete_staged(attempts: Sequence[UUID]) -> Call[int]:
    """Delete what will not be published."""


@binding
def job_result(job: str) -> Call[PublishedJob | None]:
    """Return what became of a job; None = it was not published."""


@binding
def job_rejected(job: str, after: int | None = None, limit: int | None = None) -> Call[list[RejectedRow]]:
    """List the rows of a job that were rejected, page by page."""
