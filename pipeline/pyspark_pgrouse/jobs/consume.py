"""`pgrouse pipeline consume`: a function over DataFrames works messages, a batch at a time."""

from __future__ import annotations

import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from psycopg import Error

from pgrouse.cli.command import Command, Session
from pgrouse.cli.output import Output, plural
from pgrouse.cli.parameter import DURATION
from pgrouse.duration import show
from pgrouse.errors import ExitCode, PgrouseError
from pyspark_pgrouse.claim.batch import Function, Ran, run
from pyspark_pgrouse.claim.desk import ClaimDesk
from pyspark_pgrouse.claim.function import find, source_of
from pyspark_pgrouse.executors import own_error
from pyspark_pgrouse.java import java_home
from pyspark_pgrouse.jobs.program import main, on_spark
from pyspark_pgrouse.session import session as spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_EVERY_S = 0.2
# How long the process that gives messages back may take after the query has ended.
GIVEN_BACK_WITHIN_S = 15


class Stopping(Exception):
    """Raised in a batch that came after the stop: it must not count as done."""


class Consumption:
    """One run of a function over the batches of a query.

    Args:
        function: what works them.
        desk: settles them.
        failures: after so many batches in a row whose function raised there are no more.
        tell: called with every batch that ran.
    """

    def __init__(self, function: Function, desk: ClaimDesk, failures: int, tell: Callable[[Ran], None]) -> None:
        self.stop = threading.Event()
        self.failed_in_a_row = 0
        self.messages = 0
        self._function, self._desk, self._failures, self._tell = function, desk, failures, tell
        self._running = threading.Lock()

    @property
    def has_failed(self) -> bool:
        """Whether the function raised so often that it is given up."""
        return self.failed_in_a_row >= self._failures

    def work(self, batch: DataFrame, number: int) -> None:
        """Work one batch: what Spark calls."""
        with self._running:
            if self.stop.is_set():
                raise Stopping
            ran = run(self._function, batch, number, self._desk)
            self.messages += ran.settled.total
            self.failed_in_a_row = self.failed_in_a_row + 1 if ran.error else 0
            self._tell(ran)
            if self.has_failed:
                self.stop.set()

    def wait(self, query: StreamingQuery) -> None:
        """Wait until the query ends, or somebody wants it to; then let the batch that runs end, and no other one begin.

        Raises:
            PgrouseError: why it failed.
        """
        while query.isActive and not self.stop.wait(LOOK_EVERY_S):
            pass
        with self._running:
            stopping = self.stop.is_set()
            if stopping:
                query.stop()
        failure = query.exception()
        if failure is not None and not stopping:
            raise own_error(str(failure)) or PgrouseError(f"the query failed: {failure}")


@click.command(cls=Command)
@click.argument("function", metavar="MODULE:FUNCTION")
@click.option("--topics", required=True, metavar="A,B", help="Whose messages it works.")
@click.option("--consumer", help="Its name among the workers; only one may have it. Default: MODULE:FUNCTION.")
@click.option("--rows", type=click.IntRange(1), default=50_000, show_default=True, help="In one batch, at most.")
@click.option("--bytes", "size", type=click.IntRange(1), help="Of payloads in one batch, at most.")
@click.option("--lock", type=DURATION, help="How long a message is locked, as 5m. Default: as its topic says.")
@click.option("--available-now", is_flag=True, help="Work as many messages as are ready now, and end.")
@click.option("--every", type=DURATION, default="1s", show_default=True, help="How often it looks for messages.")
@click.option("--checkpoint", metavar="DIR", help="Begin after a crash with the batch that ran. Default: a new one.")
@click.option(
    "--failures",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="End after so many failed batches in a row.",
)
@on_spark
@click.pass_obj
def consume(
    session: Session,
    /,
    function: str,
    consumer: str | None,
    failures: int,
    master: str | None,
    conf: dict[str, str],
    **chosen: Any,
) -> int:
    """Work messages by a function that takes a DataFrame.

    FUNCTION gets the messages of a batch. It returns None if all went well, or a DataFrame with the columns id and outcome (success,
    retry, reject, fail, defer or release), and if it likes reason and after; messages that this does not name succeed. If it raises, the
    attempt of each message has failed, and the topic's policy says whether there is another one.

    SIGTERM or Ctrl-C let the batch that runs end; a second one does not.
    """
    java_home()
    called = find(function, session.config.handlers.path)
    dsn = session.config.database.dsn or None
    name = consumer or function
    with ExitStack() as scope:
        with session.connect():
            pass  # that it cannot be reached is said before Spark starts
        spark = scope.enter_context(spark_session("consume", master, conf))
        if source := source_of(called):
            spark.sparkContext.addPyFile(str(source))
        desk = scope.enter_context(closing(ClaimDesk(dsn, name)))
        work = Consumption(called, desk, failures, lambda ran: _tell(session.output, ran))
        _listen(work.stop)
        folder = chosen.pop("checkpoint") or scope.enter_context(_new_checkpoint())
        query = _start(spark, work, {"consumer": name, "dsn": dsn, **chosen}, folder)
        session.output.note(f"{name} works {chosen['topics']}")
        try:
            work.wait(query)
        finally:
            _wait_until_gone(desk)
    return _conclude(session.output, work)


def _start(spark: SparkSession, work: Consumption, chosen: dict[str, Any], checkpoint: str) -> StreamingQuery:
    options = {
        "mode": "claim",
        "dsn": chosen["dsn"],
        "topics": chosen["topics"],
        "consumer": chosen["consumer"],
        "maxRowsPerBatch": chosen["rows"],
        "maxBytesPerBatch": chosen["size"],
        "lock": None if chosen["lock"] is None else show(chosen["lock"]),
        "numPartitions": spark.sparkContext.defaultParallelism,
    }
    read = spark.readStream.format("pgrouse").options(**{k: v for k, v in options.items() if v is not None}).load()
    written = read.writeStream.foreachBatch(work.work).option("checkpointLocation", checkpoint)
    every: timedelta = chosen["every"]
    if chosen["available_now"]:
        return written.trigger(availableNow=True).start()
    return written.trigger(processingTime=f"{every.total_seconds() * 1000:.0f} milliseconds").start()


def _listen(stop: threading.Event) -> None:
    """Let the first signal stop in order, and the second one at once."""

    def hear(which: int, _frame: object) -> None:
        stop.set()
        signal.signal(which, signal.SIG_DFL)

    # After Spark's own handler of SIGINT, which would cancel the batch that runs.
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, hear)


@contextmanager
def _new_checkpoint() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="pgrouse-consume-", ignore_cleanup_errors=True) as folder:
        yield Path(folder).as_uri()


def _wait_until_gone(desk: ClaimDesk) -> None:
    """Wait until the reader's process has given back what it held: where this one ends, a container may end."""
    deadline = time.monotonic() + GIVEN_BACK_WITHIN_S
    with suppress(Error, PgrouseError):
        while time.monotonic() < deadline and not desk.is_gone():
            time.sleep(0.05)


def _tell(output: Output, ran: Ran) -> None:
    if output.as_json:
        output.record(ran.as_json())
        return
    counts = ", ".join(f"{count:,} {outcome}" for outcome, count in ran.settled.counts.items())
    lost = f", {ran.settled.lost:,} lost" if ran.settled.lost else ""
    output.say(
        f"batch {ran.batch}: {plural(ran.settled.total, 'message')} in {ran.seconds:.1f} s: {counts or 'none held'}{lost}"
    )
    if ran.error:
        output.problem(f"batch {ran.batch} failed: {ran.error.strip().splitlines()[-1]}")


def _conclude(output: Output, work: Consumption) -> int:
    if work.has_failed:
        output.problem(f"the last {work.failed_in_a_row} batches failed: see `pgrouse dead group`")
        return ExitCode.FOUND_A_PROBLEM
    output.say(f"worked {plural(work.messages, 'message')}")
    return ExitCode.OK


if __name__ == "__main__":
    main(consume)
