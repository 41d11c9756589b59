"""Publishing in bulk: what tasks stage by COPY is published by one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from pgrouse.client.call import (
    Call,
    bigints,
    function_call,
    optional_row_call,
    row_call,
    rows_call,
    value,
)


@dataclass(frozen=True, slots=True)
class StagedResult:
    """What became of the rows of a job.

    Attributes:
        published: became messages, or changed one that waits.
        ignored: their key was taken.
        dropped: their topic is full.
        rejected: cannot be published.
        published_at: when.
        is_repeat: whether the job was published before; then this is what became of it.
    """

    published: int
    ignored: int
    dropped: int
    rejected: int
    published_at: datetime
    is_repeat: bool


@dataclass(frozen=True, slots=True)
class PublishedJob:
    """What became of the rows of a job, as of StagedResult."""

    published: int
    ignored: int
    dropped: int
    rejected: int
    published_at: datetime


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """A row that was not published, its reason, and what was given."""

    nth: int
    reason: str
    given_json: str


def begin_staging(job: str) -> Call[UUID | None]:
    """Begin to stage rows of a job; the attempt under which to stage them. None: the job was published before."""
    return function_call("begin_staging", value, job=job)


def publish_staged(
    job: str, attempts: Sequence[UUID], counts: Sequence[int], max_rejected: int | None = None
) -> Call[StagedResult]:
    """Publish what some attempts have staged, if the job was not published before.

    Args:
        job: its key.
        attempts: those whose rows count.
        counts: how many rows each has staged.
        max_rejected: if more are rejected, nothing is published; None = any number may be.
    """
    return row_call(
        "publish_staged",
        StagedResult,
        job=job,
        attempts=list(attempts),
        counts=bigints(counts),
        max_rejected=max_rejected,
    )


def delete_staged(attempts: Sequence[UUID]) -> Call[int]:
    """Delete what some attempts have staged; how many rows."""
    return function_call("delete_staged", value, attempts=list(attempts))


def job_result(job: str) -> Call[PublishedJob | None]:
    """Say what became of a job; None: it was not published."""
    return optional_row_call("job_result", PublishedJob, job=job)


def job_rejected(job: str, after: int | None = None, limit: int | None = None) -> Call[list[RejectedRow]]:
    """List the rows of a job that were rejected, 1,000 unless given, after this number."""
    return rows_call("job_rejected", RejectedRow, job=job, after=after, limit=limit)
