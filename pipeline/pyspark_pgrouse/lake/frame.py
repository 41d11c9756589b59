"""Files of a lake as a DataFrame."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from pyspark_pgrouse.lake.columns import arrow_schema
from pyspark_pgrouse.lake.directory import Directory
from pyspark_pgrouse.lake.manifest import DataFile, LakeColumn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

# What one task reads, where Spark cannot read the files itself.
TASK_BYTES = 128 * 1024 * 1024
BATCH_ROWS = 10_000


def frame(
    spark: SparkSession,
    directory: Directory,
    columns: tuple[LakeColumn, ...],
    files: Sequence[DataFile],
    since: datetime | None,
    until: datetime | None,
) -> DataFrame:
    """Return the rows of these files archived in this time (until is excluded). Columns that a file lacks are NULL.

    Spark reads them itself where Hadoop knows the scheme (s3a needs a jar for that), else its tasks do so by fsspec and Arrow.
    """
    schema = spark_schema(columns)
    if not files:
        rows = spark.createDataFrame([], schema)
    elif _known_to_hadoop(spark, directory):
        rows = spark.read.schema(schema).parquet(*(directory.full(file.path) for file in files))
    else:
        rows = _read_by_arrow(spark, directory, columns, files, schema)
    if since:
        rows = rows.where(f.col("archived_at") >= f.lit(since))
    return rows.where(f.col("archived_at") < f.lit(until)) if until else rows


def spark_schema(columns: tuple[LakeColumn, ...]) -> StructType:
    """Return the schema of a lake with these columns, as Spark has it."""
    schema: StructType = from_arrow_schema(arrow_schema(columns))
    return schema


def _known_to_hadoop(spark: SparkSession, directory: Directory) -> bool:
    if directory.is_local:
        return True
    context: Any = spark.sparkContext
    scheme = directory.url.partition("://")[0]
    try:
        context._jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(scheme, context._jsc.hadoopConfiguration())  # noqa: SLF001
    except Py4JJavaError:
        return False
    return True


def _read_by_arrow(
    spark: SparkSession,
    directory: Directory,
    columns: tuple[LakeColumn, ...],
    files: Sequence[DataFile],
    schema: StructType,
) -> DataFrame:
    parts = list(_parts(files))

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for path in parts[number]:
                    yield from batches_of(directory, path, columns)

    return spark.range(0, len(parts), 1, len(parts)).mapInArrow(read, schema)


def _parts(files: Sequence[DataFile]) -> Iterator[list[str]]:
    part: list[str] = []
    size = 0
    for file in files:
        part.append(file.path)
        size += file.bytes
        if size >= TASK_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def batches_of(directory: Directory, path: str, columns: tuple[LakeColumn, ...]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file with all columns of the lake."""
    schema = arrow_schema(columns)
    with directory.source(path) as stream, pq.ParquetFile(stream) as parquet:
        for rows in parquet.iter_batches(BATCH_ROWS):
            there = dict(zip(rows.schema.names, rows.columns, strict=True))
            filled = [there.get(f.name, pa.nulls(rows.num_rows, f.type)).cast(f.type) for f in schema]
            yield pa.RecordBatch.from_arrays(filled, schema=schema)
