"""`df.writeStream.format("pgrouse")`: publishes each micro-batch at one moment, and only once, even after a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from pgrouse.errors import ConfigError, PgrouseError
from pyspark_pgrouse.publish.batch import StagingWriter, staged
from pyspark_pgrouse.publish.job import publish

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pyspark_pgrouse.options import Options

# Spark passes this to its tasks; the driver's side does not get the query.
QUERY = "sql.streaming.queryId"
BATCH = "streaming.sql.batchId"


class PublishStreamWriter(StagingWriter, DataSourceStreamArrowWriter):
    """Publishes each micro-batch as a job whose key is the query's id and the number of the batch.

    If Spark was stopped after it wrote a batch and before it recorded that, it repeats the batch. The batch's job is
    published already, and does nothing more.
    """

    how = '.outputMode("append")'

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        if options.job:
            raise ConfigError("option job is not for streams: the query and the number of the batch are the key")
        super().__init__(options, schema, overwrite)

    def job_of_task(self) -> str:
        """Return the key of the micro-batch that this task belongs to."""
        task = TaskContext.get()
        query, batch = (task and task.getLocalProperty(name) for name in (QUERY, BATCH))
        if not query or not batch:
            raise PgrouseError(
                "Spark has not said which query and batch this task is of: write it as a batch, with option job"
            )
        return f"{query}/{batch}"

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Publish the batch.

        Raises:
            PublishRejected: a policy of a topic forbids it, or the stage was lost; the query fails, and repeats the
                batch when it is restarted.
        """
        done = staged(messages)
        if done:
            publish(self.options.dsn, done[0].job, done, self.options.max_rejected)
