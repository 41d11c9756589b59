"""Failure rates: which share of a topic's messages ended dead. What was cancelled does not count."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pyspark_pgrouse.report.throughput import RESULTS


def failures(throughput: DataFrame) -> DataFrame:
    """Return one row per topic of the table `throughput`: its sums, `dead`, and `failure_rate` (NULL if all were cancelled)."""
    sums = [F.sum(each).alias(each) for each in ("ended", *RESULTS)]
    dead = F.col("ended") - F.col("success") - F.col("cancelled")
    rate = F.try_divide("dead", F.col("ended") - F.col("cancelled"))
    return throughput.groupBy("topic").agg(*sums).withColumn("dead", dead).withColumn("failure_rate", rate)
