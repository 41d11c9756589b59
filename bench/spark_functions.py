"""The functions that `pgrouse pipeline consume` runs in a benchmark."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
from bench.digest import digest
from pyspark.sql import DataFrame


def nothing(batch: DataFrame) -> None:
    """Do nothing, and read nothing."""


def hash_many(batch: DataFrame) -> None:
    """Use 0.5 ms of CPU for each message, in Python."""
    batch.select("payload").mapInArrow(_hash_many, "digest string").write.format("noop").mode("append").save()


def _hash_many(parts: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for part in parts:
        made = [digest(json.loads(payload)["text"]) for payload in part.column(0).to_pylist()]
        yield pa.RecordBatch.from_arrays([pa.array(made)], ["digest"])
