"""How many messages were worked on at once. By Little's law that is the time they were held in a bucket, divided by its width."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from pyspark_pgrouse.report.bucket import bucket
from pyspark_pgrouse.report.window import Window

ATTEMPTS = "array<struct<worker: string, started: string, ended: string>>"


def holds(ended: DataFrame, window: Window) -> DataFrame:
    """Return `worker`, `began` and `left` of every attempt, the earlier ones from the history; what lies outside of the window is cut off."""
    shown = ended.where("is_shown")
    last = shown.where("locked_at IS NOT NULL").select(
        F.col("handled_by").alias("worker"), F.col("locked_at").alias("began"), F.col("archived_at").alias("left")
    )
    one = shown.where("history IS NOT NULL").select(F.explode(F.from_json("history", ATTEMPTS)).alias("a"))
    earlier = one.select(
        F.col("a.worker"), F.try_to_timestamp("a.started").alias("began"), F.try_to_timestamp("a.ended").alias("left")
    )
    began = F.greatest("began", F.lit(window.since)).alias("began")
    left = F.least("left", F.lit(window.until)).alias("left")
    return last.unionByName(earlier).where("began IS NOT NULL").select("worker", began, left).where("left > began")


def capacity(holds: DataFrame, bucket_s: int) -> DataFrame:
    """Return one row per worker and bucket in which it held something: `busy`, the mean number of messages it held at once.

    Args:
        holds: a worker (NULL = unknown) held a message from `began` to `left`.
        bucket_s: the width of a bucket in seconds.
    """
    steps = (
        holds.select("worker", F.explode(_steps(bucket_s)).alias("s"))
        .groupBy("worker", F.col("s.at").alias("at"))
        .agg(F.sum("s.part_s").alias("part_s"), F.sum("s.more").alias("more"))
    )
    in_time = Over.partitionBy("worker").orderBy("at")
    level = steps.select(
        "worker",
        "at",
        "part_s",
        F.sum("more").over(in_time).alias("whole"),
        F.coalesce(F.lead("at").over(in_time), F.col("at") + _width(bucket_s)).alias("next"),
    )
    # Between two steps the level stays: those buckets are filled in.
    filled = level.select(
        "worker",
        "part_s",
        "whole",
        F.col("at").alias("step"),
        F.explode(F.sequence("at", F.col("next") - _width(bucket_s), _width(bucket_s))).alias("at"),
    )
    part = F.when(F.col("at") == F.col("step"), F.col("part_s")).otherwise(0.0)
    return filled.select("worker", "at", (F.col("whole") + part / bucket_s).alias("busy")).where("busy > 0")


def _steps(bucket_s: int) -> Column:
    """Return at most three steps of a hold: its part of the first bucket, one more from the next on, one less and its part of the last."""
    first, last = bucket(F.col("began"), bucket_s), bucket(F.col("left"), bucket_s)
    inside = F.array(_step(first, _between(F.col("began"), F.col("left")), 0))
    across = F.array(
        _step(first, _between(F.col("began"), first + _width(bucket_s)), 0),
        _step(first + _width(bucket_s), F.lit(0.0), 1),
        _step(last, _between(last, F.col("left")), -1),
    )
    return F.when(first == last, inside).otherwise(across)


def _step(at: Column, part_s: Column, more: int) -> Column:
    return F.struct(at.alias("at"), part_s.alias("part_s"), F.lit(more).alias("more"))


def _between(begin: Column, end: Column) -> Column:
    return (F.unix_micros(end) - F.unix_micros(begin)) / 1_000_000


def _width(seconds: int) -> Column:
    return F.make_dt_interval(secs=F.lit(seconds))
