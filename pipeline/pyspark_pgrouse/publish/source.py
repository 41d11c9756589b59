"""Reads files and tables as DataFrames whose columns are those of messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException

from pgrouse.errors import ConfigError
from pyspark_pgrouse.publish.columns import CORRUPT, KNOWN
from pyspark_pgrouse.publish.lines import split

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Format(StrEnum):
    """The format of the files."""

    JSON = "json"
    CSV = "csv"
    PARQUET = "parquet"


# The types to which the columns of text are cast; bytes are base64, delays are seconds.
FIELDS = {
    "body": "binary",
    "priority": "int",
    "delay": "double",
    "available_at": "timestamp",
    "ttl": "double",
    "expires_at": "timestamp",
    "max_attempts": "int",
    "timeout": "double",
    "retention": "double",
    "batch_id": "bigint",
}


@dataclass(frozen=True)
class PublishSource:
    """The files or the table to publish.

    Attributes:
        paths: files and directories; none = a table.
        table: the name of the table.
        format: the format of the files.
        whole: each whole row is a payload; otherwise its columns are those of a message.
        topic: the topic of all rows; None = the rows have a column for it.
    """

    paths: tuple[str, ...]
    table: str | None
    format: Format
    whole: bool
    topic: str | None

    def read(self, spark: SparkSession) -> DataFrame:
        """Return the rows.

        Raises:
            ConfigError: a file is missing, or has an unknown column.
        """
        try:
            return self._rows(spark)
        except AnalysisException as error:
            raise ConfigError(f"cannot read {self}: {error.getMessage() or error}") from error

    def __str__(self) -> str:
        return ", ".join(self.paths) or f"table {self.table}"

    def _rows(self, spark: SparkSession) -> DataFrame:
        match self.format if self.paths else None:
            case Format.JSON:
                lines = spark.read.text(list(self.paths)).where("trim(value) <> ''")
                return lines.selectExpr("value AS payload") if self.whole else _of_lines(lines)
            case Format.CSV:
                rows = spark.read.csv(list(self.paths), header=True, escape='"', encoding="UTF-8")
                return _as_payload(rows) if self.whole else _of_texts(rows)
            case Format.PARQUET:
                rows = spark.read.parquet(*self.paths)
            case _:
                rows = spark.table(str(self.table))
        return _as_payload(rows) if self.whole else rows

    def key(self, spark: SparkSession, rows: DataFrame) -> str | None:
        """Return a key for exactly these files: their paths, sizes and times.

        None for a table, for which these are not known.
        """
        files = sorted(rows.inputFiles()) if self.paths else []
        if not files:
            return None
        digest = sha256(repr((self.format.value, self.whole, self.topic)).encode())
        for file in files:
            digest.update(repr((file, *_status(spark, file))).encode())
        return f"files/{digest.hexdigest()[:40]}"


def exists(spark: SparkSession, path: str) -> bool:
    """Whether a path exists in any file system that Spark knows."""
    found, system = _hadoop(spark, path)
    return bool(system.exists(found))


def _status(spark: SparkSession, file: str) -> Sequence[int]:
    found, system = _hadoop(spark, file)
    status = system.getFileStatus(found)
    return status.getLen(), status.getModificationTime()


def _hadoop(spark: SparkSession, path: str) -> tuple[Any, Any]:
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - PySpark has no other way to Hadoop's file systems
    found = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(path) if ":" in path else path)
    return found, found.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())  # noqa: SLF001


def _as_payload(rows: DataFrame) -> DataFrame:
    return rows.selectExpr("to_json(struct(*), map('ignoreNullFields', 'false')) AS payload")


def _of_lines(lines: DataFrame) -> DataFrame:
    """Parse one JSON object per line: its fields are the columns."""
    found = {name for (name,) in lines.selectExpr("explode(json_object_keys(value))").distinct().limit(1000).collect()}
    _check_known(found)
    names = [name for name in KNOWN if name in found]
    types = ", ".join(f"{name} STRING" for name in (*names, CORRUPT))
    return _of_texts(lines.mapInArrow(partial(split, names), types))


def _of_texts(rows: DataFrame) -> DataFrame:
    """Convert columns of text. A row with a value that its column's type does not accept is corrupt."""
    names = [name for name in rows.columns if name != CORRUPT]
    _check_known(names)
    columns = [f"{_cast(name)} AS {name}" if name in FIELDS else name for name in names]
    wrong = [f"({name} IS NOT NULL AND {_cast(name)} IS NULL)" for name in names if name in FIELDS]
    corrupt = f"CASE WHEN {' OR '.join(wrong or ['false'])} THEN to_json(struct(*)) END"
    before = CORRUPT if CORRUPT in rows.columns else "NULL"
    return rows.selectExpr(*columns, f"CAST(coalesce({before}, {corrupt}) AS STRING) AS {CORRUPT}")


def _cast(name: str) -> str:
    type_ = FIELDS[name]
    return f"try_to_binary({name}, 'base64')" if type_ == "binary" else f"try_cast({name} AS {type_})"


def _check_known(names: Any) -> None:
    if unknown := sorted(set(names) - set(KNOWN)):
        raise ConfigError(
            f"no column {unknown[0]} of a message: known are {', '.join(KNOWN)}. "
            "If the whole row is the payload, say --row-as-payload"
        )
