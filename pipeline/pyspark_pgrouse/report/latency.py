"""How long messages waited, ran, and took in all: percentiles."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_pgrouse.report.bucket import bucket

MEASURES = ("wait", "run", "total")
PERCENTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def latency(ended: DataFrame, bucket_s: int) -> DataFrame:
    """Return percentiles by bucket and topic; `topic` NULL = of all topics, `at` NULL = of the whole window. In seconds."""
    shown = ended.where("is_shown AND counts").withColumn("at", bucket(F.col("archived_at"), bucket_s))
    return _spread(shown.rollup("at", "topic").agg(F.count("*").alias("messages"), *_arrays()))


def latency_by_topic(ended: DataFrame) -> DataFrame:
    """Return percentiles by topic over the whole window, in seconds."""
    grouped = ended.where("is_shown AND counts").groupBy("topic")
    return _spread(grouped.agg(F.count("*").alias("messages"), *_arrays()))


def percentiles(seconds: Column) -> Column:
    """Return the percentiles of a column as an array; at most one rank in a thousand off."""
    return F.percentile_approx(seconds, list(PERCENTILES.values()), 1_000)


def _arrays() -> list[Column]:
    return [percentiles(F.col(f"{measure}_s")).alias(measure) for measure in MEASURES]


def _spread(grouped: DataFrame) -> DataFrame:
    kept = [name for name in grouped.columns if name not in MEASURES]
    spread = [F.col(m)[i].alias(f"{m}_{p}_s") for m in MEASURES for i, p in enumerate(PERCENTILES)]
    return grouped.select(*kept, *spread)
