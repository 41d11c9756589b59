"""`consume`: a function over DataFrames processes messages, a batch at a time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pgrouse.errors import ConfigError
from pyspark_pgrouse import connection
from pyspark_pgrouse.claim.batch import BatchFunction, BatchResult
from pyspark_pgrouse.claim.batch_consumer import BatchConsumer, ConsumerLimits, OnError
from pyspark_pgrouse.claim.batch_settler import BatchSettler
from pyspark_pgrouse.claim.batch_size import BatchSize
from pyspark_pgrouse.claim.consumer_locks import ConsumerRegistration
from pyspark_pgrouse.claim.executor_claims import ExecutorClaims
from pyspark_pgrouse.claim.locks_process import LocksProcess
from pyspark_pgrouse.claim.outcome import SettledCounts
from pyspark_pgrouse.claim.share import ConsumerSettings
from pyspark_pgrouse.claim.signal_flag import SignalFlag
from pyspark_pgrouse.session import refuse_connect, translated_errors

if TYPE_CHECKING:
    import psycopg
    from pyspark.sql import SparkSession

SHORTEST_LOCK = timedelta(seconds=1)
LONGEST_LOCK = timedelta(days=7)
ONE_ATTEMPT = """
    SELECT u.topic
    FROM unnest(%s::text[]) AS u (topic)
    CROSS JOIN messages.topic AS d
    LEFT JOIN messages.topic AS t ON t.topic = u.topic
    WHERE d.topic = '*' AND coalesce(t.max_attempts, d.max_attempts) = 1
"""


@dataclass(frozen=True)
class ConsumerOptions:
    """How messages are consumed.

    Attributes:
        consumer: its name among the workers; only one process may use it at a time.
        topics: the topics whose messages it processes.
        dsn: a connection string or URI of libpq; None = its environment.
        rows: the maximum number of messages in one batch.
        max_bytes: of the payloads of a batch, about; 0 = any.
        lock: how long a message is locked; None = as its topic says.
        available_now: whether it ends after as many messages as are ready when it begins.
        interval_s: how often it looks for messages.
        max_failed_batches: it ends after so many failed batches in a row.
        on_error: what becomes of a batch over which the function raises.
        allow_single_attempt: also process topics with `max_attempts` 1: if the machine fails, the messages that it holds are dead.
    """

    consumer: str
    topics: tuple[str, ...]
    dsn: str | None = field(default=None, repr=False)
    rows: int = 10_000
    max_bytes: int = 0
    lock: timedelta | None = None
    available_now: bool = False
    interval_s: float = 1.0
    max_failed_batches: int = 3
    on_error: OnError = OnError.BISECT
    allow_single_attempt: bool = False

    def __post_init__(self) -> None:
        """Check them.

        Raises:
            ConfigError: a value that it cannot have.
        """
        if isinstance(self.topics, str) or not self.topics or not all(self.topics):
            raise ConfigError(f"topics must be a tuple of names, found {self.topics!r}")
        if self.lock is not None and not SHORTEST_LOCK <= self.lock <= LONGEST_LOCK:
            raise ConfigError(f"lock must be between 1s and 7d, found {self.lock}")
        least = {"rows": self.rows, "max_failed_batches": self.max_failed_batches, "interval": self.interval_s}
        for name, value in least.items():
            if value <= 0:
                raise ConfigError(f"{name} must be more than 0, found {value}")


@dataclass(frozen=True)
class ConsumerResult:
    """What a run did: what became of all messages, and how many of its last batches failed."""

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
        spark: a session with a JVM of its own.
        function: gets the messages of a batch; returns None, or a DataFrame with id and outcome.
        options: which messages, and how.
        report: called with every batch that ran.
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
        claims = ExecutorClaims(spark, _settings(options), settler, options.max_bytes)
        size, limits = BatchSize(options.rows), _limits(options, settler)
        with LocksProcess(_registration(options)) as locks:
            run = BatchConsumer(function, claims, settler, locks, size, limits, report, stop)
            run.run()
    return ConsumerResult(run.settled, run.failed_in_a_row)


def check_attempts(conn: psycopg.Connection[Any], options: ConsumerOptions) -> str | None:
    """Refuse topics whose messages have one attempt: what a machine that fails had in flight would be dead, a whole batch at once.

    Returns:
        What is to be warned of, if there are such topics and the options accept them.

    Raises:
        ConfigError: there are such topics.
    """
    found = [topic for (topic,) in conn.execute(ONE_ATTEMPT, [list(options.topics)])]
    if not found:
        return None
    what = (
        f"{', '.join(found)}: max_attempts is 1, so the messages that this job holds when its machine fails are dead "
        f"(lock_expired): `pgrouse topic set {found[0]} max_attempts=5` gives them more"
    )
    if not options.allow_single_attempt:
        raise ConfigError(f"{what}; --allow-single-attempt (allow_single_attempt) accepts it")
    return what


def _limits(options: ConsumerOptions, settler: BatchSettler) -> ConsumerLimits:
    ready = settler.count_ready(options.topics) if options.available_now else None
    return ConsumerLimits(options.max_failed_batches, options.interval_s, ready, options.on_error)


def _settings(options: ConsumerOptions) -> ConsumerSettings:
    return ConsumerSettings(options.consumer, options.topics, options.dsn, options.lock)


def _registration(options: ConsumerOptions) -> ConsumerRegistration:
    lock_s = None if options.lock is None else options.lock.total_seconds()
    return ConsumerRegistration(options.consumer, options.topics, options.rows, options.dsn, lock_s)
