"""`df.write.format("pgrouse")`: publishes all rows of a DataFrame at one moment.

It does so only once, however often the job is run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from pgrouse.errors import ConfigError, PgrouseError
from pyspark_pgrouse.connection.connection import connect
from pyspark_pgrouse.publish import columns as publish_columns
from pyspark_pgrouse.publish.job import JobResult, publish
from pyspark_pgrouse.publish.stage import Staged, check_usable, clear, stage

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyspark_pgrouse.options import Options


class StagingWriter:
    """Stages the rows of each task, for `PublishWriter` and `PublishStreamWriter`. Its stage is published, or deleted.

    Spark creates it on the driver and sends copies of it to the executors, so it holds no connection.

    Raises:
        ConfigError: the DataFrame or the options cannot be published, or the role may not.
        DatabaseUnreachable: no connection. Both are raised before any task runs.
    """

    how = '.mode("append")'

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise ConfigError(f"a queue cannot be overwritten: use {self.how}")
        publish_columns.check(schema, options.topic)
        with connect(options.dsn) as conn:
            check_usable(conn)
        self.options = options
        self.job = options.job or f"spark/{uuid4()}"

    def job_of_task(self) -> str:
        """Return the key under which a task stages."""
        return self.job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of one task.

        Each repetition stages its rows again, and only those of the last one are published.
        """
        return stage(self.options.dsn, self.job_of_task(), self.options.topic, iterator)

    def abort(self, messages: list[WriterCommitMessage | None], *_: Any) -> None:
        """Delete what was staged. If that fails now, the queue's maintenance deletes it after a day."""
        with contextlib.suppress(PgrouseError):
            clear(self.options.dsn, staged(messages))


class PublishWriter(StagingWriter, DataSourceArrowWriter):
    """Publishes in one transaction what the successful tasks have staged."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish. A second call does nothing: the job's key is in the same transaction.

        Raises:
            PublishRejected: a policy of a topic forbids it, or the stage was lost; nothing was published.
        """
        self.outcome: JobResult = publish(self.options.dsn, self.job, staged(messages), self.options.max_rejected)


def staged(messages: Iterable[Any]) -> list[Staged]:
    """Return the reports of the tasks; failed tasks returned none."""
    return [message for message in messages if isinstance(message, Staged)]
