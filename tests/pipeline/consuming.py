"""Runs of a consumer for tests, in a session of Spark that is there already."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from pyspark_pgrouse.claim.batch import BatchFunction, BatchResult
from pyspark_pgrouse.claim.batch_consumer import BatchConsumer, ConsumerLimits
from pyspark_pgrouse.claim.batch_settler import BatchSettler
from pyspark_pgrouse.claim.batch_size import BatchSize
from pyspark_pgrouse.claim.consumer_locks import ConsumerRegistration
from pyspark_pgrouse.claim.executor_claims import ExecutorClaims
from pyspark_pgrouse.claim.locks_process import LocksProcess
from pyspark_pgrouse.claim.share import ConsumerSettings
from tests.server.postgres import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def consumed(spark: SparkSession, database: Database, function: BatchFunction, rows: int = 1_000) -> list[BatchResult]:
    """Process as many messages of the topic t as are ready, and return the batches."""
    ran: list[BatchResult] = []
    with (
        LocksProcess(ConsumerRegistration("c", ("t",), rows, database.dsn)) as locks,
        closing(BatchSettler(database.dsn, "c")) as settler,
    ):
        claims = ExecutorClaims(spark, ConsumerSettings("c", ("t",), database.dsn), settler)
        limits = ConsumerLimits(failures=1, interval_s=0.1, messages=settler.count_ready(["t"]))
        BatchConsumer(function, claims, settler, locks, BatchSize(rows), limits, ran.append).run()
    return ran
