"""A lake as a DataFrame."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.utils import is_remote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from pyspark_pgrouse.lake.directory import Directory
    from pyspark_pgrouse.lake.lake import Lake

# From this many paths on, Spark lists them in a separate job.
PARALLEL_LISTING = "spark.sql.sources.parallelPartitionDiscovery.threshold"


def frame(
    spark: SparkSession, lake: Lake, since: datetime | None, until: datetime | None, topics: Collection[str]
) -> DataFrame:
    """Return the rows archived in this time (until is excluded), of these topics (none = all).

    They are from the version that the lake has read.

    Spark reads the files if Hadoop knows the scheme (s3a needs a jar for that), and then only the columns and the
    partitions of a query. Otherwise Spark's tasks read them with Arrow.
    """
    if _known_to_hadoop(spark, lake.directory) and _is_partitioned_as_hive(lake):
        return _by_spark(spark, lake, since, until, topics)
    options = {
        "lake": lake.directory.url,
        "versionAsOf": str(lake.table.version()),
        "storageOptions": json.dumps(lake.directory.options),
    }
    if topics:
        options["topics"] = ",".join(topics)
    bounds = {name: moment.isoformat() for name, moment in {"since": since, "until": until}.items() if moment}
    return spark.read.format("pgrouse").options(**options, **bounds).load()


def _by_spark(
    spark: SparkSession, lake: Lake, since: datetime | None, until: datetime | None, topics: Collection[str]
) -> DataFrame:
    schema: StructType = from_arrow_schema(lake.schema)
    files = lake.files(since, until, topics)
    if not files:
        return spark.createDataFrame([], schema)
    with _listed_here(spark, files if lake.directory.is_local else []):
        rows = spark.read.schema(schema).option("basePath", lake.directory.url).parquet(*files)
    if topics:
        rows = rows.where(f.col("topic").isin(*topics))
    if since:
        rows = rows.where(f.col("archived_at") >= f.lit(since))
    return rows.where(f.col("archived_at") < f.lit(until)) if until else rows


def _known_to_hadoop(spark: SparkSession, directory: Directory) -> bool:
    if directory.is_local:
        return True
    if is_remote():
        return False  # a client of Spark Connect cannot ask
    context: Any = spark.sparkContext
    scheme = directory.url.partition("://")[0]
    try:
        filesystem = context._jvm.org.apache.hadoop.fs.FileSystem  # noqa: SLF001
        filesystem.getFileSystemClass(scheme, context._jsc.hadoopConfiguration())  # noqa: SLF001
    except Py4JJavaError:
        return False
    return True


def _is_partitioned_as_hive(lake: Lake) -> bool:
    """Whether Spark finds in each path the partition that the log has.

    It does not if a directory name was cut, or another engine chose it.
    """
    log = pa.table(lake.table.get_add_actions(flatten=True))
    paths = log["path"].to_pylist()
    expected = [""] * len(paths)
    for name in lake.partition_by:
        values = log[f"partition.{name}"].to_pylist()
        expected = [
            f"{so_far}{name}={quote(str(value), safe='')}/" for so_far, value in zip(expected, values, strict=True)
        ]
    return all(map(str.startswith, paths, expected))


@contextmanager
def _listed_here(spark: SparkSession, files: Sequence[str]) -> Iterator[None]:
    """Make Spark list local files in this process: a task for each would take longer than reading them."""
    before = spark.conf.get(PARALLEL_LISTING)
    spark.conf.set(PARALLEL_LISTING, max(int(str(before)), len(files)))
    try:
        yield
    finally:
        spark.conf.set(PARALLEL_LISTING, str(before))
