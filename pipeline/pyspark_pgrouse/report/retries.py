"""How many attempts messages took."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def retries(ended: DataFrame) -> DataFrame:
    """Return one row per topic and number of attempts: how many messages ended with it, and how many of them dead.

    0 attempts: it ended before it was claimed.
    """
    return (
        ended.where("is_shown")
        .groupBy("topic", "attempts")
        .agg(F.count("*").alias("messages"), F.count_if("is_dead").alias("dead"))
    )
