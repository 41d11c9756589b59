"""The work of a data team.

Files are published as messages, Spark processes them in batches, and their results become a table.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from pyspark_pgrouse.claim.consumer import consume
from pyspark_pgrouse.claim.consumer_options import ConsumerOptions
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
    """Process the messages that are ready: store each reading, and reject those without a temperature.

    If this process dies in a batch, its messages come back: a reading may be stored twice, with the same id.
    """

    def store(batch: DataFrame) -> DataFrame:
        readings = batch.select("id", f.from_json("payload", READING).alias("reading")).select("id", "reading.*")
        readings.where("celsius IS NOT NULL").write.mode("append").parquet(f"{folder}/readings")
        faulty = readings.where("celsius IS NULL")
        return faulty.selectExpr("id", "'reject' AS outcome", "'no temperature' AS reason")

    consume(spark, store, ConsumerOptions("readings", (TOPIC,), dsn, available_now=True))


def averages(spark: SparkSession, folder: Path) -> DataFrame:
    """Return the average temperature by day and sensor."""
    readings = spark.read.parquet(f"{folder}/readings").dropDuplicates(["id"])
    by_day = readings.groupBy(f.to_date("taken_at").alias("day"), "sensor")
    return by_day.agg(f.round(f.avg("celsius"), 1).alias("celsius")).orderBy("day", "sensor")


def results(spark: SparkSession, dsn: str) -> DataFrame:
    """Return how many messages ended with which result: a query over the archive of the queue."""
    archive = spark.read.format("pgrouse").option("dsn", dsn).option("topics", TOPIC)
    return archive.schema("result STRING").load().groupBy("result").count().orderBy("result")
