"""Shows what would happen to rows, as far as this is known without the database."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_pgrouse.publish import check as publish_check
from pyspark_pgrouse.publish import columns as publish_columns

Judge = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]


def preview(topic: str | None) -> Judge:
    """Return a function for mapInArrow that gives the topic of each row, and why it would be rejected.

    null = it would not.
    """

    def judged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from (_preview_groups(batch, topic) for batch in batches)

    return judged


def _preview_groups(batch: pa.RecordBatch, topic: str | None) -> pa.RecordBatch:
    columns = publish_columns.normal(batch, topic)
    none = pa.nulls(batch.num_rows, pa.string())
    reasons = publish_check.faults(columns, batch.num_rows)
    reasons = pc.coalesce(reasons, publish_check.unreadable(columns, batch.num_rows))
    return pa.record_batch([columns.get("topic", none), reasons], names=["topic", "reason"])
