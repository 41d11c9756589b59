"""Whether few channels make most of a topic's messages."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as F

TOP = 5


def channels(ended: DataFrame) -> DataFrame:
    """Return one row per topic and channel: how many messages ended, and how long they ran in all. Messages without a channel are left out."""
    return (
        ended.where("is_shown AND channel IS NOT NULL")
        .groupBy("topic", "channel")
        .agg(F.count("*").alias("messages"), F.coalesce(F.sum("run_s"), F.lit(0.0)).alias("run_s"))
    )


def skew(channels: DataFrame) -> DataFrame:
    """Return one row per topic of the table `channels`.

    Returns:
        `top_share` of the largest channel, `max_over_mean`, `gini` (0 = all alike, towards 1 = one has all), and the `top` channels themselves.
    """
    of_topic = Over.partitionBy("topic")
    ranked = channels.select(
        "*",
        F.row_number().over(of_topic.orderBy("messages", "channel")).alias("rank"),
        F.row_number().over(of_topic.orderBy(F.desc("messages"), "channel")).alias("place"),
    )
    n, total = F.col("channels"), F.col("messages")
    grouped = ranked.groupBy("topic").agg(
        F.count("*").alias("channels"),
        F.sum("messages").alias("messages"),
        F.max("messages").alias("most"),
        F.sum(F.col("rank") * F.col("messages")).alias("weighted"),
        F.sort_array(F.collect_list(F.when(F.col("place") <= TOP, F.struct("place", "channel", "messages")))).alias(
            "top"
        ),
    )
    return grouped.select(
        "topic",
        "channels",
        "messages",
        (F.col("most") / total).alias("top_share"),
        (F.col("most") * n / total).alias("max_over_mean"),
        (2 * F.col("weighted") / (n * total) - (n + 1) / n).alias("gini"),
        "top",
    )
