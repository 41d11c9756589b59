"""How much ended, and how: by topic and step of time."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pyspark_pgrouse.report.bucket import bucket

RESULTS = ("success", "rejected", "failed", "lock_expired", "expired", "cancelled")


def throughput(ended: DataFrame, step_s: int) -> DataFrame:
    """Return one row per topic and step in which something ended: how many messages, and how many with each result."""
    counts = [F.count_if(F.col("result") == each).alias(each) for each in RESULTS]
    return (
        ended.where("is_shown")
        .groupBy("topic", bucket(F.col("archived_at"), step_s).alias("at"))
        .agg(F.count("*").alias("ended"), *counts)
    )
