"""The archive as a table that follows it, and its dead messages.

The database is configured by libpq's environment (PGHOST, PGSERVICE, ...): the files of a pipeline should have no password.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

ENDED = "id BIGINT, topic STRING, result STRING, error STRING, error_fingerprint STRING, attempts INT, created_at TIMESTAMP, archived_at TIMESTAMP"


@dp.table(name="ended", comment="Every message that ended, once", partition_cols=["topic"])
def ended() -> DataFrame:
    """Read the rows archived since the last update. Only these columns are read, so no payload leaves the database."""
    return SparkSession.active().readStream.format("pgrouse").schema(ENDED).option("mode", "archive").load()


@dp.materialized_view(name="faults", comment="What messages died of")
def faults() -> DataFrame:
    """Count dead messages by kind of error. Computed again from the whole table by every update."""
    dead = SparkSession.active().read.table("ended").where("result NOT IN ('success', 'cancelled')")
    died = dead.groupBy("topic", "error_fingerprint")
    return died.agg(f.count("id").alias("messages"), f.max("archived_at").alias("last_at"))
