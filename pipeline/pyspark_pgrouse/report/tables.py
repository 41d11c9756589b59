"""The tables of a report: Parquet files, each made by one pass and read again where it is needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from pyspark_pgrouse.report.capacity import capacity, holds
from pyspark_pgrouse.report.changes import changes
from pyspark_pgrouse.report.channels import channels, skew
from pyspark_pgrouse.report.error_budget import attainment
from pyspark_pgrouse.report.failures import failures
from pyspark_pgrouse.report.fingerprints import fingerprint_trend, fingerprints
from pyspark_pgrouse.report.latency import latency, latency_by_topic
from pyspark_pgrouse.report.retries import retries
from pyspark_pgrouse.report.slo import Slo
from pyspark_pgrouse.report.throughput import throughput
from pyspark_pgrouse.report.window import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAMES = (
    "throughput",
    "failures",
    "latency",
    "latency_by_topic",
    "changes",
    "fingerprints",
    "fingerprint_trend",
    "retries",
    "channels",
    "skew",
    "capacity",
    "slo",
)
ANY_SLO = (Slo(0.99, timedelta(seconds=1)),)


class Tables:
    """The tables in a folder.

    Args:
        folder: a path or URL that Spark can write to.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._made: dict[str, DataFrame] = {}

    def __getitem__(self, name: str) -> DataFrame:
        return self._made[name]

    def write(self, ended: DataFrame, window: Window, slos: Sequence[Slo], began: Callable[[str], None]) -> None:
        """Make all tables. Those that were not asked for are empty, so that none of the previous report is left.

        Args:
            ended: what `ended.ended` returns.
            window: what is shown and compared.
            slos: the service level objectives.
            began: called with the name of each table.
        """
        makers = self._makers(ended, window, slos)
        for name in NAMES:
            began(name)
            self._write(name, makers[name]())

    def _makers(self, ended: DataFrame, window: Window, slos: Sequence[Slo]) -> dict[str, Callable[[], DataFrame]]:
        none = ended.where("false")
        return {
            "throughput": lambda: throughput(ended, window.step_s),
            "failures": lambda: failures(self["throughput"]),
            "latency": lambda: latency(ended, window.bucket_s),
            "latency_by_topic": lambda: latency_by_topic(ended),
            "changes": lambda: changes(ended if window.mark else none),
            "fingerprints": lambda: fingerprints(ended),
            "fingerprint_trend": lambda: fingerprint_trend(ended, window.bucket_s),
            "retries": lambda: retries(ended),
            "channels": lambda: channels(ended),
            "skew": lambda: skew(self["channels"]),
            "capacity": lambda: capacity(holds(ended, window), window.bucket_s),
            "slo": lambda: attainment(ended if slos else none, slos or ANY_SLO, window.step_s),
        }

    def _write(self, name: str, table: DataFrame) -> None:
        path = f"{self._folder}/{name}"
        table.write.mode("overwrite").parquet(path)
        self._made[name] = table.sparkSession.read.parquet(path)
