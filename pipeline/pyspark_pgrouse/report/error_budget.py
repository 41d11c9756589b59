"""Goals of service, and how fast their error budgets are used up."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from pyspark_pgrouse.report.bucket import bucket
from pyspark_pgrouse.report.slo import Goal
from pyspark_pgrouse.report.window import Window

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LOOKBACKS_H = (1, 6)


def attainment(ended: DataFrame, goals: Sequence[Goal], step_s: int) -> DataFrame:
    """Return one row per goal and step: how many messages ended (cancelled ones do not count), and how many of them met the goal."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    counts = [each for i, goal in enumerate(goals) for each in _counts(i, goal)]
    wide = ended.where("is_shown AND counts").groupBy(bucket(F.col("archived_at"), step_s).alias("at")).agg(*counts)
    rows = F.array(
        *(
            F.struct(
                F.lit(goal.name).alias("goal"), F.col(f"ended_{i}").alias("ended"), F.col(f"good_{i}").alias("good")
            )
            for i, goal in enumerate(goals)
        )
    )
    return wide.select("at", F.inline(rows)).where("ended > 0").select("goal", "at", "ended", "good")


def _counts(i: int, goal: Goal) -> tuple[Column, Column]:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    mine = F.lit(True) if goal.topic is None else F.col("topic") == goal.topic
    good = mine & (F.col("result") == "success") & (F.col("total_s") <= goal.within.total_seconds())
    return F.count_if(mine).alias(f"ended_{i}"), F.count_if(good).alias(f"good_{i}")


def burn(attainment: DataFrame, goals: Sequence[Goal], window: Window) -> DataFrame:
    """Return one row per goal and look back from the window's end: its length in hours, how many ended and met the goal, and the burn rate.

    A burn rate of 1 uses up exactly the whole budget; NULL = nothing ended. Looks back that are longer than the window are left out.
    """
    from functools import reduce  # noqa: PLC0415

    spark = attainment.sparkSession
    budgets = spark.createDataFrame([(g.name, g.budget) for g in goals], "goal string, budget double")
    hours = [h for h in LOOKBACKS_H if h * 3600 < window.seconds] + [window.seconds / 3600]
    parts = [_look_back(attainment, budgets, h, window.until) for h in hours]
    return reduce(lambda a, b: a.unionByName(b), parts)


def _look_back(attainment: DataFrame, budgets: DataFrame, hours: float, until: datetime) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    recent = attainment.where(F.col("at") >= F.lit(until - timedelta(hours=hours)))
    sums = recent.groupBy("goal").agg(F.sum("ended").alias("ended"), F.sum("good").alias("good"))
    joined = budgets.join(sums, "goal", "left").select(
        "goal", "budget", F.coalesce("ended", F.lit(0)).alias("ended"), F.coalesce("good", F.lit(0)).alias("good")
    )
    rate = F.try_divide(F.col("ended") - F.col("good"), F.col("ended")) / F.col("budget")
    return joined.select("goal", F.lit(float(hours)).alias("hours"), "ended", "good", rate.alias("burn_rate"))
