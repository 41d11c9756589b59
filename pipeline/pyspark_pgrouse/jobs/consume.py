"""`pgrouse pipeline consume`: a function over DataFrames works messages, a batch at a time."""

from __future__ import annotations

import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from psycopg import Error

from pgrouse.cli.command import CliSession, Command
from pgrouse.cli.output import Output
from pgrouse.cli.param_types import DURATION
from pgrouse.config.duration import show
from pgrouse.error_line import last_line
from pgrouse.errors import ConfigError, ExitCode, PgrouseError
from pgrouse.format import plural
from pyspark_pgrouse.claim.batch import BatchFunction, BatchResult, run_batch
from pyspark_pgrouse.claim.batch_settler import BatchSettler
from pyspark_pgrouse.claim.outcome import DEAD, SettledCounts
from pyspark_pgrouse.claim.user_function import find_function, source_file
from pyspark_pgrouse.executors import pgrouse_error
from pyspark_pgrouse.java import java_home
from pyspark_pgrouse.jobs.program import main, spark_options
from pyspark_pgrouse.session import session as spark_session

if TYPE_CHECKING:
    import psycopg
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# How many failed messages of a batch are printed, one per line.
MAX_ERROR_LINES = 5
# How results of messages that are not dead are printed, in this order.
RESULT_TEXTS = {
    "success": "success",
    "cancelled": "superseded",
    "retry": "to retry later",
    "defer": "deferred",
    "release": "released",
}
ONE_ATTEMPT = """
    SELECT u.topic
    FROM unnest(%s::text[]) AS u (topic)
    CROSS JOIN messages.topic AS d
    LEFT JOIN messages.topic AS t ON t.topic = u.topic
    WHERE d.topic = '*' AND coalesce(t.max_attempts, d.max_attempts) = 1
"""
POLL_S = 0.2
# How long the process that gives messages back may take after the query has ended.
RELEASE_TIMEOUT_S = 15


class ConsumerStopping(Exception):
    """Raised in a batch that came after the stop: it must not count as done."""


class BatchConsumer:
    """One run of a function over the batches of a query.

    Args:
        function: what works them.
        settler: settles their messages.
        failures: stop after so many batches in a row whose function raised.
        report: called with every batch that ran.
    """

    def __init__(
        self, function: BatchFunction, settler: BatchSettler, failures: int, report: Callable[[BatchResult], None]
    ) -> None:
        self.stop = threading.Event()
        self.failed_in_a_row = 0
        self.settled = SettledCounts()
        self._function, self._settler, self._failures, self._report = function, settler, failures, report
        self._running = threading.Lock()

    def work(self, batch: DataFrame, number: int) -> None:
        """Work one batch: what Spark calls."""
        with self._running:
            if self.stop.is_set():
                raise ConsumerStopping
            ran = run_batch(self._function, batch, number, self._settler, self.stop.is_set)
            self.settled += ran.settled
            self.failed_in_a_row = self.failed_in_a_row + 1 if ran.has_failed else 0
            self._report(ran)
            if self.failed_in_a_row >= self._failures:
                self.stop.set()

    def wait(self, query: StreamingQuery) -> None:
        """Wait until the query ends, or is asked to stop; then let the running batch finish, and start no other.

        Raises:
            PgrouseError: why it failed.
        """
        while query.isActive and not self.stop.wait(POLL_S):
            pass
        with self._running:
            stopping = self.stop.is_set()
            if stopping:
                query.stop()
        failure = query.exception()
        if failure is not None and not stopping:
            raise pgrouse_error(str(failure)) or PgrouseError(f"the query failed: {failure}")


@click.command(cls=Command)
@click.argument("function", metavar="MODULE:FUNCTION")
@click.option("--topics", required=True, metavar="A,B", help="The topics whose messages it processes.")
@click.option(
    "--consumer", help="Its name among the workers; only one process may use it at a time. Default: MODULE:FUNCTION."
)
@click.option(
    "--rows",
    type=click.IntRange(1),
    default=10_000,
    show_default=True,
    help="The maximum number of messages in one batch.",
)
@click.option("--bytes", "size", type=click.IntRange(1), help="The maximum number of bytes of payloads in one batch.")
@click.option(
    "--lock-duration",
    "lock",
    type=DURATION,
    help="How long a message is locked, like 5m. Default: the topic's lock_duration.",
)
@click.option("--available-now", is_flag=True, help="Process the messages that are ready now, and end.")
@click.option("--interval", type=DURATION, default="1s", show_default=True, help="How often it looks for messages.")
@click.option(
    "--checkpoint",
    metavar="DIR",
    help="After a crash, begin with the batch that was running. Default: a new directory.",
)
@click.option(
    "--max-failed-batches",
    "failures",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="End after this many failed batches in a row.",
)
@click.option(
    "--allow-single-attempt",
    "one_attempt",
    is_flag=True,
    help="Also process topics with max_attempts 1: if the machine fails, the messages that the job holds are dead.",
)
@spark_options
@click.pass_obj
def consume(
    session: CliSession,
    /,
    function: str,
    consumer: str | None,
    failures: int,
    one_attempt: bool,
    master: str | None,
    conf: dict[str, str],
    **chosen: Any,
) -> int:
    """Process messages with a function that takes a DataFrame.

    FUNCTION gets the messages of a batch. It returns None if all messages succeeded, or a DataFrame with the columns id and outcome
    (complete, retry, expire, reject, fail, defer or release), and optionally reason, after, until, state, output and ran; messages that are
    not in it succeed. If the function raises, it is called again with parts of the batch until the messages that make it raise are found:
    their attempts have failed, the others are released.

    SIGTERM or Ctrl-C lets the running batch end; a second one does not.
    """
    java_home()
    called = find_function(function, session.config.handlers.import_path)
    dsn = session.config.database.dsn or None
    name = consumer or function
    with ExitStack() as scope:
        with session.connect() as conn:  # that it cannot be reached is said before Spark starts
            _check_attempts(session.output, conn, chosen["topics"], accepted=one_attempt)
        spark = scope.enter_context(spark_session("consume", master, conf))
        if source := source_file(called):
            spark.sparkContext.addPyFile(str(source))
        settler = scope.enter_context(closing(BatchSettler(dsn, name)))
        work = BatchConsumer(called, settler, failures, lambda ran: _report_batch(session.output, ran))
        _install_signal_handlers(work.stop)
        query = _start(spark, work, {"consumer": name, "dsn": dsn, **chosen}, scope)
        session.output.note(f"{name} works {chosen['topics']}")
        try:
            work.wait(query)
        finally:
            _wait_for_reader(settler)
    return _conclude(session.output, work)


def _check_attempts(output: Output, conn: psycopg.Connection[Any], topics: str, *, accepted: bool) -> None:
    """Refuse topics whose messages have one attempt: what a machine that fails had in flight would be dead, a whole batch at once.

    Raises:
        ConfigError: there are such topics, and it was not accepted.
    """
    names = [name.strip() for name in topics.split(",")]
    found = [topic for (topic,) in conn.execute(ONE_ATTEMPT, [names])]
    if not found:
        return
    what = (
        f"{', '.join(found)}: max_attempts is 1, so the messages that this job holds when its machine fails are dead "
        f"(lock_expired): `pgrouse topic set {found[0]} max_attempts=5` gives them more"
    )
    if not accepted:
        raise ConfigError(f"{what}, --allow-single-attempt accepts it")
    output.problem(what)


def _start(spark: SparkSession, work: BatchConsumer, chosen: dict[str, Any], scope: ExitStack) -> StreamingQuery:
    checkpoint = chosen["checkpoint"] or scope.enter_context(_new_checkpoint())
    options = {
        "mode": "claim",
        "dsn": chosen["dsn"],
        "topics": chosen["topics"],
        "consumer": chosen["consumer"],
        "maxRowsPerBatch": chosen["rows"],
        "maxBytesPerBatch": chosen["size"],
        "lockDuration": None if chosen["lock"] is None else show(chosen["lock"]),
        "numPartitions": spark.sparkContext.defaultParallelism,
        # Without a checkpoint there is no restart that would go on with what was claimed.
        "releaseOnCrash": None if chosen["checkpoint"] else "true",
    }
    read = spark.readStream.format("pgrouse").options(**{k: v for k, v in options.items() if v is not None}).load()
    written = read.writeStream.foreachBatch(work.work).option("checkpointLocation", checkpoint)
    interval: timedelta = chosen["interval"]
    if chosen["available_now"]:
        return written.trigger(availableNow=True).start()
    return written.trigger(processingTime=f"{interval.total_seconds() * 1000:.0f} milliseconds").start()


def _install_signal_handlers(stop: threading.Event) -> None:
    """Let the first signal stop in order, and the second one at once."""

    def handle(which: int, _frame: object) -> None:
        stop.set()
        signal.signal(which, signal.SIG_DFL)

    # After Spark's own handler of SIGINT, which would cancel the batch that runs.
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, handle)


@contextmanager
def _new_checkpoint() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="pgrouse-consume-", ignore_cleanup_errors=True) as folder:
        yield Path(folder).as_uri()


def _wait_for_reader(settler: BatchSettler) -> None:
    """Wait until the reader's process has given back what it held: where this one ends, a container may end."""
    deadline = time.monotonic() + RELEASE_TIMEOUT_S
    with suppress(Error, PgrouseError):
        while time.monotonic() < deadline and not settler.has_reader_left():
            time.sleep(0.05)


def _report_batch(output: Output, ran: BatchResult) -> None:
    if output.as_json:
        output.record(ran.as_json())
    else:
        output.say(
            f"batch {ran.batch}: {plural(ran.settled.total, 'message')} in {ran.seconds:.1f} s: {_format_counts(ran.settled)}"
        )
    if ran.has_failed and ran.error:
        output.problem(f"batch {ran.batch} failed: {last_line(ran.error)}")
    for id_, error in islice(ran.at_fault.items(), MAX_ERROR_LINES):
        output.problem(f"batch {ran.batch}: message {id_} failed alone: {last_line(error)}")
    if len(ran.at_fault) > MAX_ERROR_LINES:
        output.problem(f"batch {ran.batch}: and {len(ran.at_fault) - MAX_ERROR_LINES:,} more messages")


def _format_counts(settled: SettledCounts) -> str:
    """Say what became of messages: `9,998 success, 2 dead (1 rejected, 1 failed), 3 released`."""
    counts = {became: settled.counts.get(became, 0) for became in RESULT_TEXTS}
    said = [f"{count:,} {RESULT_TEXTS[became]}" for became, count in counts.items() if count]
    if settled.dead:
        dead = ", ".join(f"{settled.counts[result]:,} {result}" for result in DEAD if settled.counts.get(result))
        said.insert(1 if counts["success"] else 0, f"{settled.dead:,} dead ({dead})")
    if settled.lost:
        said.append(f"{settled.lost:,} lost")
    return ", ".join(said) or "none held"


def _conclude(output: Output, work: BatchConsumer) -> int:
    if work.failed_in_a_row:
        batches = "batch" if work.failed_in_a_row == 1 else f"{work.failed_in_a_row} batches"
        output.problem(f"the last {batches} failed, and what was not worked is back in the queue: see the errors above")
    output.say(f"in all: {_format_counts(work.settled)}")
    return ExitCode.FOUND_A_PROBLEM if work.failed_in_a_row else ExitCode.OK


if __name__ == "__main__":
    main(consume)
