"""The work of a data team: files become messages, Spark works them in batches, and their results become a table."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pyspark_pgrouse.claim.outcome import settle
from pyspark_pgrouse.publish.job import job_result

TOPIC = "reading.taken"
READING = "sensor STRING, taken_at TIMESTAMP, celsius DOUBLE"


def publish(spark: SparkSession, dsn: str, file: Path) -> int:
    """Publish a message for each line of a file, all at one moment.

    The file's name is the key of the job: publishing the same file again publishes nothing.
    """
    job = f"readings {file.name}"
    lines = spark.read.schema(READING).json(str(file))
    messages = lines.select(f.struct("sensor", "taken_at", "celsius").alias("payload"))
    messages.write.format("pgrouse").options(dsn=dsn, topic=TOPIC, job=job).mode("append").save()
    return job_result(dsn, job).published


def work(spark: SparkSession, dsn: str, folder: Path) -> None:
    """Work the messages that are ready: store each reading, and reject those without a temperature.

    If this process dies in a batch, the next run gets the same batch with the same number, which replaces its files.
    """

    def store(batch: DataFrame, number: int) -> None:
        batch.persist()
        readings = batch.where("payload.celsius IS NOT NULL").select("id", "payload.*")
        readings.write.mode("overwrite").parquet(f"{folder}/readings/batch={number}")
        faulty = batch.where("payload.celsius IS NULL")
        settle(faulty.selectExpr("id", "claim_id", "'reject' AS outcome", "'no temperature' AS reason"), dsn)
        batch.unpersist()

    claimed = spark.readStream.format("pgrouse").options(
        dsn=dsn, mode="claim", topics=TOPIC, consumer="readings", payload=READING, releaseOnCrash="true"
    )
    stream = claimed.load().writeStream.foreachBatch(store).option("checkpointLocation", f"{folder}/checkpoint")
    stream.trigger(availableNow=True).start().awaitTermination()


def averages(spark: SparkSession, folder: Path) -> DataFrame:
    """Return the average temperature by day and sensor."""
    readings = spark.read.parquet(f"{folder}/readings")
    by_day = readings.groupBy(f.to_date("taken_at").alias("day"), "sensor")
    return by_day.agg(f.round(f.avg("celsius"), 1).alias("celsius")).orderBy("day", "sensor")


def results(spark: SparkSession, dsn: str) -> DataFrame:
    """Return how many messages ended with which result: a query over the archive of the queue."""
    archive = spark.read.format("pgrouse").option("dsn", dsn).option("topics", TOPIC)
    return archive.schema("result STRING").load().groupBy("result").count().orderBy("result")
