"""Time in equal steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column


def bucket(moment: Column, seconds: int) -> Column:
    """Return the start of the step that a moment lies in; steps are counted from 1970, in UTC."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return F.timestamp_micros(
        (F.floor(F.unix_micros(moment) / (seconds * 1_000_000)) * seconds * 1_000_000).cast("bigint")
    )
