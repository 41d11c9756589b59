"""What went wrong: dead messages by the fingerprint of their error."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_pgrouse.report.bucket import bucket


def fingerprints(ended: DataFrame) -> DataFrame:
    """Return one row per topic and fingerprint that is seen in the window.

    Returns:
        `messages` of the window with `first_seen` and `last_seen`; `before` and `after` the mark; the id and error of the newest as a sample.
        A message that died without an error has its result as the fingerprint.
    """
    shown = F.col("is_shown")
    newest = F.max_by(F.struct("id", "error", "result"), F.struct("archived_at", "id"))
    grouped = (
        ended.where("is_dead")
        .groupBy("topic", fingerprint().alias("fingerprint"))
        .agg(
            F.count_if(shown).alias("messages"),
            F.count_if(~F.col("is_after")).alias("before"),
            F.count_if(F.col("is_after")).alias("after"),
            F.min(F.when(shown, F.col("archived_at"))).alias("first_seen"),
            F.max("archived_at").alias("last_seen"),
            newest.alias("sample"),
        )
    )
    sample = [F.col(f"sample.{each}").alias(f"sample_{each}") for each in ("id", "result", "error")]
    return grouped.where("messages > 0").select(*grouped.columns[:-1], *sample)


def fingerprint_trend(ended: DataFrame, bucket_s: int) -> DataFrame:
    """Return how many messages died with each fingerprint, by bucket."""
    return (
        ended.where("is_dead AND is_shown")
        .groupBy("topic", fingerprint().alias("fingerprint"), bucket(F.col("archived_at"), bucket_s).alias("at"))
        .agg(F.count("*").alias("messages"))
    )


def fingerprint() -> Column:
    """Return what a dead message is grouped by."""
    return F.coalesce("error_fingerprint", "result")
