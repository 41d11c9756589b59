"""Time in equal steps."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F


def bucket(moment: Column, seconds: int) -> Column:
    """Return the start of the step that a moment lies in; steps are counted from 1970, in UTC."""
    return F.timestamp_micros(
        (F.floor(F.unix_micros(moment) / (seconds * 1_000_000)) * seconds * 1_000_000).cast("bigint")
    )
