"""From a source to a report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pyspark_pgrouse.report.collect import collect_findings
from pyspark_pgrouse.report.destination import Destination
from pyspark_pgrouse.report.ended import ended
from pyspark_pgrouse.report.findings import Findings
from pyspark_pgrouse.report.html.page import page
from pyspark_pgrouse.report.slo import Slo
from pyspark_pgrouse.report.source import ArchiveSource
from pyspark_pgrouse.report.tables import NAMES, Tables
from pyspark_pgrouse.report.window import Window

# Percentiles are gathered in a hash table as long as it has no more groups than this, and sorted from there on. Spark's own 128 is less than a
# chart has points: everything would be sorted. A group that is small takes about 2 kB.
SETTINGS = {"spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "10000"}
STAGES = ("read", *NAMES, "page")


@dataclass(frozen=True)
class ReportRequest:
    """What is asked for."""

    source: ArchiveSource
    window: Window
    slos: Sequence[Slo]
    destination: Destination


def build_report(spark: SparkSession, request: ReportRequest, began: Callable[[str], None]) -> Findings:
    """Write the tables and the page; return what the page says.

    Args:
        spark: the session. In it nothing is cached, and only bounded results are collected.
        request: what is asked for.
        began: called with each of STAGES.
    """
    try:
        with _settings(spark):
            return _build(spark, request, began)
    finally:
        request.destination.clean()


@contextmanager
def _settings(spark: SparkSession) -> Iterator[None]:
    """Set what a report wants of the session, which may be another's."""
    before: dict[str, str | None] = {name: spark.conf.get(name, None) for name in SETTINGS}
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)


def _build(spark: SparkSession, request: ReportRequest, began: Callable[[str], None]) -> Findings:
    began("read")
    archive = _readable_archive(spark, request)
    found = _initial_findings(archive, request)
    tables = Tables(request.destination.tables)
    tables.write(ended(archive, found.window), found.window, request.slos, began)
    began("page")
    findings = collect_findings(tables, found, request.slos)
    request.destination.write_page(page(findings))
    return findings


def _readable_archive(spark: SparkSession, request: ReportRequest) -> DataFrame:
    """Return the rows from where they can be read again and again: a database is asked once only."""
    archive = request.source.read(spark, request.window)
    if request.source.is_rereadable:
        return archive
    archive.write.parquet(request.destination.spool)
    return spark.read.schema(archive.schema).parquet(request.destination.spool)


def _initial_findings(archive: DataFrame, request: ReportRequest) -> Findings:
    """Return what is known before the tables: how many rows there are, and the part of the window that they fill."""
    rows = ended(archive, request.window).agg(
        F.count("*").alias("read"),
        F.min(F.when(F.col("is_shown"), F.unix_micros("archived_at"))).alias("first"),
        F.max(F.when(F.col("is_shown"), F.unix_micros("archived_at"))).alias("last"),
    )
    row = rows.collect()[0]
    first, last = (
        None if at is None else datetime.fromtimestamp(at / 1_000_000, UTC) for at in (row["first"], row["last"])
    )
    return Findings(
        source=request.source.name,
        window=request.window.fitted(first, last),
        asked=request.window,
        made_at=datetime.now(UTC),
        read=row["read"],
    )
