"""A client of Spark Connect, with a server of its own on this machine.

`connect_client.py LAKE` prints as JSON what it read and wrote.

The database is in PGROUSE_DSN.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pgrouse.errors import ConfigError
from pyspark_pgrouse.claim.consumer import consume
from pyspark_pgrouse.claim.consumer_options import ConsumerOptions
from pyspark_pgrouse.lake.lake import Lake
from pyspark_pgrouse.session import session

DSN = os.environ["PGROUSE_DSN"]


def reader(spark: SparkSession, **options: str) -> Any:
    return spark.read.format("pgrouse").options(dsn=DSN, **options)


def archived(spark: SparkSession) -> dict[str, Any]:
    payload = reader(spark, columns="id, payload", payload="n BIGINT").load()
    return {
        "counted": [list(row) for row in reader(spark, groupBy="topic, result").load().collect()],
        "filtered": reader(spark, columns="id").load().where("id > 1").count(),
        "fields": sorted(row.payload.n for row in payload.collect()),
    }


def written_twice(spark: SparkSession) -> int:
    rows = spark.createDataFrame([("t", '{"n": 100}'), ("t", '{"n": 101}')], "topic STRING, payload STRING")
    for _ in range(2):
        rows.write.format("pgrouse").options(dsn=DSN, job="once").mode("append").save()
    return int(reader(spark, mode="ready").load().count())


def streamed(spark: SparkSession) -> int:
    ends = spark.readStream.format("pgrouse").options(dsn=DSN).load().writeStream.format("memory").queryName("ends")
    query = ends.option("checkpointLocation", tempfile.mkdtemp()).trigger(availableNow=True).start()
    query.awaitTermination()
    return spark.table("ends").count()


def refused(spark: SparkSession) -> list[str]:
    said = []
    try:
        reader(spark, colums="id").load().count()
    except PySparkException as error:
        said.append(str(error))
    for job in (lambda: session("job").__enter__(), lambda: consume(spark, print, ConsumerOptions("c", ("t",), DSN))):
        try:
            job()
        except ConfigError as error:
            said.append(str(error))
    return said


def main(lake: str) -> dict[str, Any]:
    """Use each part once."""
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    found = {
        "archived": archived(spark),
        "ready": written_twice(spark),
        "streamed": streamed(spark),
        "lake": [
            Lake.open(lake).read(spark).count(),
            spark.read.format("pgrouse").option("lake", lake).load().where("topic = 't'").count(),
        ],
        "refused": refused(spark),
    }
    spark.stop()
    return found


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
