"""SLOs, and how fast their error budgets are used up."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_pgrouse.report.bucket import bucket
from pyspark_pgrouse.report.slo import Slo
from pyspark_pgrouse.report.window import Window

LOOKBACKS_H = (1, 6)


def attainment(ended: DataFrame, slos: Sequence[Slo], step_s: int) -> DataFrame:
    """Return one row per SLO and step: how many messages ended (cancelled ones do not count), and how many of them met the SLO."""
    counts = [each for i, slo in enumerate(slos) for each in _counts(i, slo)]
    wide = ended.where("is_shown AND counts").groupBy(bucket(F.col("archived_at"), step_s).alias("at")).agg(*counts)
    rows = F.array(
        *(
            F.struct(F.lit(slo.name).alias("slo"), F.col(f"ended_{i}").alias("ended"), F.col(f"good_{i}").alias("good"))
            for i, slo in enumerate(slos)
        )
    )
    return wide.select("at", F.inline(rows)).where("ended > 0").select("slo", "at", "ended", "good")


def _counts(i: int, slo: Slo) -> tuple[Column, Column]:
    mine = F.lit(True) if slo.topic is None else F.col("topic") == slo.topic
    good = mine & (F.col("result") == "success") & (F.col("total_s") <= slo.within.total_seconds())
    return F.count_if(mine).alias(f"ended_{i}"), F.count_if(good).alias(f"good_{i}")


def compute_burn_rates(attainment: DataFrame, slos: Sequence[Slo], window: Window) -> DataFrame:
    """Return one row per SLO and look back from the window's end: its length in hours, how many ended and met the SLO, and the burn rate.

    A burn rate of 1 uses up exactly the whole budget; NULL = nothing ended. Looks back that are longer than the window are left out.
    """
    spark = attainment.sparkSession
    budgets = spark.createDataFrame([(g.name, g.budget) for g in slos], "slo string, budget double")
    hours = [h for h in LOOKBACKS_H if h * 3600 < window.seconds] + [window.seconds / 3600]
    parts = [_look_back(attainment, budgets, h, window.until) for h in hours]
    return reduce(lambda a, b: a.unionByName(b), parts)


def _look_back(attainment: DataFrame, budgets: DataFrame, hours: float, until: datetime) -> DataFrame:
    recent = attainment.where(F.col("at") >= F.lit(until - timedelta(hours=hours)))
    sums = recent.groupBy("slo").agg(F.sum("ended").alias("ended"), F.sum("good").alias("good"))
    joined = budgets.join(sums, "slo", "left").select(
        "slo", "budget", F.coalesce("ended", F.lit(0)).alias("ended"), F.coalesce("good", F.lit(0)).alias("good")
    )
    rate = F.try_divide(F.col("ended") - F.col("good"), F.col("ended")) / F.col("budget")
    return joined.select("slo", F.lit(float(hours)).alias("hours"), "ended", "good", rate.alias("burn_rate"))
