"""How each message ended, and how long that took: what all tables are made of.

No payload is in it: a file of the lake is read for these columns only.
"""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pyspark_pgrouse.report.window import Window

ALIVE = ("success", "cancelled")
SAMPLE_LENGTH = 2000


def ended(archive: DataFrame, window: Window) -> DataFrame:
    """Measure archived messages.

    Args:
        archive: rows with the columns of `messages.message_archive`; more columns do no harm.
        window: rows outside of what it reads are left out.

    Returns:
        One row per message: `is_dead`, `counts` (it was not cancelled), `is_shown` (in the window and not only in its baseline), `is_after`
        (from the mark on); `wait_s` and `run_s` of its last attempt, NULL if it was never claimed; `total_s` from when it was first due. The
        archive keeps the last `available_at` only: of a message that was tried before the total begins with `created_at`.
    """
    tried_before = F.col("history").isNotNull() | (F.col("attempts") > 1)
    due = F.when(tried_before, F.col("created_at")).otherwise(F.greatest("created_at", "available_at"))
    within = (F.col("archived_at") >= F.lit(window.first)) & (F.col("archived_at") < F.lit(window.until))
    return archive.where(within).select(
        "id",
        "topic",
        "channel",
        "result",
        "attempts",
        "archived_at",
        "locked_at",
        "handled_by",
        "history",
        "error_fingerprint",
        F.substring("error", 1, SAMPLE_LENGTH).alias("error"),
        (~F.col("result").isin(*ALIVE)).alias("is_dead"),
        (F.col("result") != "cancelled").alias("counts"),
        (F.col("archived_at") >= F.lit(window.since)).alias("is_shown"),
        _from(window.mark).alias("is_after"),
        _seconds(F.col("available_at"), F.col("locked_at")).alias("wait_s"),
        _seconds(F.col("locked_at"), F.col("archived_at")).alias("run_s"),
        _seconds(due, F.col("archived_at")).alias("total_s"),
    )


def _from(mark: datetime | None) -> Column:
    return F.lit(True) if mark is None else F.col("archived_at") >= F.lit(mark)


def _seconds(begin: Column, end: Column) -> Column:
    """Return the time between two moments; NULL without one of them. timestampdiff would cut off what is below its unit."""
    micros = F.unix_micros(end) - F.unix_micros(begin)
    return F.when(micros < 0, F.lit(0.0)).otherwise(micros / 1_000_000)
