"""What became other at the mark: a deploy, or the start of the window after its baseline."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_pgrouse.report.latency import PERCENTILES, percentiles

SIDES = ("before", "after")


def changes(ended: DataFrame) -> DataFrame:
    """Return one row per topic, and one with topic NULL for all: messages, dead ones and total times before and after the mark.

    Cancelled messages do not count.
    """
    totals = [c for side in SIDES for c in _of(side)]
    grouped = ended.where("counts").rollup("topic").agg(*totals)
    counts = [f"{what}_{side}" for what in ("ended", "dead") for side in SIDES]
    spread = [F.col(f"total_{side}")[i].alias(f"total_{p}_{side}_s") for p, i in _indexes().items() for side in SIDES]
    return grouped.select("topic", *counts, *spread)


def _of(side: str) -> list[Column]:
    here = F.col("is_after") if side == "after" else ~F.col("is_after")
    return [
        F.count_if(here).alias(f"ended_{side}"),
        F.count_if(here & F.col("is_dead")).alias(f"dead_{side}"),
        percentiles(F.when(here, F.col("total_s"))).alias(f"total_{side}"),
    ]


def _indexes() -> dict[str, int]:
    return {name: i for i, name in enumerate(PERCENTILES)}
