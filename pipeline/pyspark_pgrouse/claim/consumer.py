"""`consume`: a function over DataFrames processes messages, a batch at a time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgrouse.client.call import run
from pgrouse.client.queries.topic import effective_policy, find_policies
from pgrouse.errors import ConfigError
from pyspark_pgrouse.claim.batch import BatchFunction, BatchResult
from pyspark_pgrouse.claim.batch_consumer import BatchConsumer
from pyspark_pgrouse.claim.batch_settler import BatchSettler
from pyspark_pgrouse.claim.consumer_options import ConsumerOptions
from pyspark_pgrouse.claim.executor_claims import ExecutorClaims
from pyspark_pgrouse.claim.locks_process import LocksProcess
from pyspark_pgrouse.claim.outcome import SettledCounts
from pyspark_pgrouse.claim.signal_flag import SignalFlag
from pyspark_pgrouse.connection import connection
from pyspark_pgrouse.session import refuse_connect, translated_errors

if TYPE_CHECKING:
    import psycopg
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class ConsumerResult:
    """The results of a run: those of all messages, and how many of its last batches failed."""

    settled: SettledCounts
    failed_in_a_row: int


def consume(
    spark: SparkSession,
    function: BatchFunction,
    options: ConsumerOptions,
    report: Callable[[BatchResult], Any] = lambda _: None,
    stop: SignalFlag | None = None,
) -> ConsumerResult:
    """Process messages with a function that takes a DataFrame, until it is stopped.

    Args:
        spark: a session with its own JVM.
        function: gets the messages of a batch; returns None, or a DataFrame with id and outcome.
        options: which messages are processed, and how.
        report: called with every batch that was processed.
        stop: set it to end the run after the batch that is running.

    Raises:
        ConfigError: a topic has `max_attempts` 1, Spark may run tasks twice, or the session is one of Spark Connect.
        ConsumerTaken: another process has this name.
        DatabaseUnreachable: with the reason.
        SparkEnded: its JVM is gone.
    """
    refuse_connect()
    with connection.connect(options.dsn) as conn:
        check_attempts(conn, options)
    stop = stop or SignalFlag()
    with closing(BatchSettler(options.dsn, options.consumer)) as settler, translated_errors(spark):
        claims = ExecutorClaims(spark, options, settler)
        with LocksProcess(options) as locks:
            consumer = BatchConsumer(function, claims, settler, locks, options, report, stop)
            consumer.run()
    return ConsumerResult(consumer.settled, consumer.failed_in_a_row)


def check_attempts(conn: psycopg.Connection[Any], options: ConsumerOptions) -> str | None:
    """Refuse topics whose messages have one attempt.

    If a machine fails, all messages that it has in flight would be dead, a whole batch at once.

    Returns:
        A warning, if there are such topics and the options accept them.

    Raises:
        ConfigError: there are such topics.
    """
    policies = run(conn, find_policies(options.topics, ["max_attempts"]))
    found = [topic for topic in options.topics if effective_policy(policies, topic)["max_attempts"] == 1]
    if not found:
        return None
    what = (
        f"{', '.join(found)}: max_attempts is 1, so the messages that this job holds when its machine fails are dead "
        f"(lock_expired): `pgrouse topic set {found[0]} max_attempts=5` gives them more"
    )
    if not options.allow_single_attempt:
        raise ConfigError(f"{what}; --allow-single-attempt (allow_single_attempt) accepts it")
    return what
