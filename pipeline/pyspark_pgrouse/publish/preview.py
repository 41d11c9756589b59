"""Shows what would happen to rows, as far as this is known without the database."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_pgrouse.publish import check as publish_check
from pyspark_pgrouse.publish import columns as publish_columns


def preview(topic: str | None, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the topic of each row, and why it would be rejected; null = it would not."""
    for batch in batches:
        columns = publish_columns.normal(batch, topic)
        none = pa.nulls(batch.num_rows, pa.string())
        reasons = publish_check.faults(columns, batch.num_rows)
        reasons = pc.coalesce(reasons, publish_check.unreadable(columns, batch.num_rows))
        yield pa.record_batch([columns.get("topic", none), reasons], names=["topic", "reason"])
