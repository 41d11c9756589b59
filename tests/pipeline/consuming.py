"""Runs of a consumer for tests, in a session of Spark that is there already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark_pgrouse.claim.batch import BatchFunction, BatchResult
from pyspark_pgrouse.claim.consumer import consume
from pyspark_pgrouse.claim.consumer_options import ConsumerOptions
from tests.server.postgres import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def consumed(spark: SparkSession, database: Database, function: BatchFunction, rows: int = 1_000) -> list[BatchResult]:
    """Process as many messages of the topic t as are ready, and return the batches."""
    ran: list[BatchResult] = []
    options = ConsumerOptions(
        "c",
        ("t",),
        database.dsn,
        rows,
        available_now=True,
        interval_s=0.1,
        max_failed_batches=1,
        allow_single_attempt=True,
    )
    consume(spark, function, options, ran.append)
    return ran
