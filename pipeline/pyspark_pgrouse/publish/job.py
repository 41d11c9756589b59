"""A job of bulk publishing: the transaction in which it publishes, its result, and its rejected rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from pgrouse.client.call import run
from pgrouse.client.calls import bulk
from pgrouse.client.calls.bulk import publish_staged
from pyspark_pgrouse.connection.connection import connect, run_with_retry
from pyspark_pgrouse.options import configured_dsn
from pyspark_pgrouse.publish.error import translated_errors
from pyspark_pgrouse.publish.stage import Staged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PAGE = 10_000


@dataclass(frozen=True)
class JobResult:
    """The result of a job's rows.

    Attributes:
        published: became messages, or changed a waiting message (on_conflict replace and append).
        ignored: their key is in use or held, and on_conflict is ignore.
        dropped: their topic is full, and its policy is to drop.
        rejected: cannot be published; see `rejected`.
        is_repeat: the job was published before: this is its result from then.
    """

    published: int
    ignored: int
    dropped: int
    rejected: int
    is_repeat: bool


def publish(dsn: str | None, job: str, staged: Sequence[Staged], max_rejected: int | None = None) -> JobResult:
    """Publish in one transaction what tasks staged, if the job was not published before.

    Args:
        dsn: the connection string; None = the environment.
        job: the key of the job.
        staged: the report of each task.
        max_rejected: if more rows than this are rejected, nothing is published; None = any number may be rejected.

    Raises:
        DatabaseUnreachable: there was no connection, or it was lost and did not come back.
        PublishRejected: a policy of a topic forbids it, or the stage was lost; nothing was published.
    """
    counted = [(UUID(each.attempt), each.rows) for each in staged if each.attempt is not None]
    call = publish_staged(job, [attempt for attempt, _ in counted], [rows for _, rows in counted], max_rejected)
    # Try again when the connection was lost: the key of the job is committed together with the messages, or not at all.
    with translated_errors():
        done = run_with_retry(dsn, lambda conn: run(conn, call))
    return JobResult(done.published, done.ignored, done.dropped, done.rejected, done.is_repeat)


def job_result(dsn: str | None, job: str) -> JobResult | None:
    """Return the result of a job; None if it was not published."""
    with translated_errors():
        done = run_with_retry(dsn or configured_dsn(), lambda conn: run(conn, bulk.job_result(job)))
    return JobResult(done.published, done.ignored, done.dropped, done.rejected, is_repeat=True) if done else None


def rejected(spark: SparkSession, job: str, dsn: str | None = None) -> DataFrame:
    """Return the rows of a job that were not published.

    `nth` is their number, `reason` the reason, `given` their columns as JSON.

    Raises:
        ConfigError: the job is another user's.
        DatabaseUnreachable: no connection.
    """
    return spark.createDataFrame(list(rejected_rows(dsn, job)), "nth BIGINT, reason STRING, given STRING")


def rejected_rows(dsn: str | None, job: str, page_size: int = PAGE) -> Iterator[tuple[int, str, str]]:
    """Yield the rows of a job that were not published, page by page.

    Each has its number, the reason, and the columns as JSON.
    """
    last = 0
    with connect(dsn or configured_dsn()) as conn, translated_errors():
        while page := run(conn, bulk.job_rejected(job, last, page_size)):
            last = page[-1].nth
            yield from ((row.nth, row.reason, row.given_json) for row in page)
