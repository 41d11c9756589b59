"""`pgrouse pipeline consume`: a function over DataFrames processes messages, a batch at a time."""

from __future__ import annotations

import signal
from functools import partial
from itertools import islice
from typing import Any

import click

from pgrouse.errors import ExitCode
from pgrouse.terminal.command import CliSession, Command
from pgrouse.terminal.output import Output
from pgrouse.terminal.param_types import DURATION, NAMES
from pgrouse.values.error_line import last_line
from pgrouse.values.format import plural
from pyspark_pgrouse.claim.batch import BatchResult
from pyspark_pgrouse.claim.consumer import ConsumerResult, check_attempts
from pyspark_pgrouse.claim.consumer import consume as run
from pyspark_pgrouse.claim.consumer_options import ConsumerOptions, OnError
from pyspark_pgrouse.claim.outcome import DEAD, SettledCounts
from pyspark_pgrouse.claim.signal_flag import SignalFlag
from pyspark_pgrouse.claim.user_function import find_function, source_file
from pyspark_pgrouse.connection.queue_dsn import dsn_of
from pyspark_pgrouse.java import java_home
from pyspark_pgrouse.jobs.job_options import spark_options
from pyspark_pgrouse.jobs.run_metrics import RunReport, record_run
from pyspark_pgrouse.session import session as spark_session

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


@click.command(cls=Command)
@click.argument("function", metavar="MODULE:FUNCTION")
@click.option("--topics", type=NAMES, required=True, metavar="A,B", help="The topics whose messages it processes.")
@click.option(
    "--consumer",
    metavar="NAME",
    help="Its name among the workers; only one process may use it at a time. Default: MODULE:FUNCTION.",
)
@click.option(
    "--rows",
    type=click.IntRange(1),
    default=10_000,
    show_default=True,
    help="The maximum number of messages in one batch. A batch has fewer while the function takes longer than a "
    "third of their lock.",
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
    "--max-failed-batches",
    "failures",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="End after this many failed batches in a row.",
)
@click.option(
    "--on-error",
    type=click.Choice([each.value for each in OnError]),
    default=OnError.BISECT.value,
    show_default=True,
    help="If the function raises: bisect = search the messages that cause it; release = release the whole batch.",
)
@click.option(
    "--allow-single-attempt",
    "one_attempt",
    is_flag=True,
    help="Also process topics with max_attempts 1. By default they are refused: "
    "if the machine fails, the messages that the job holds are dead.",
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

    FUNCTION gets the messages of a batch. It returns None if all messages succeeded, or a DataFrame with the columns id
    and outcome (complete, retry, expire, reject, fail, defer or release), and optionally reason, after, until, state,
    output, ran and pause; messages that are not in it succeed. If the function raises, it is called again with parts of
    the batch until the messages that make it raise are found: their attempts have failed, the others are released. With
    --on-error release the whole batch is released at once.

    SIGTERM or Ctrl-C lets the running batch end; a second one does not.
    """
    java_home()
    called = find_function(function, session.config.handlers.import_path)
    options = ConsumerOptions(
        consumer=consumer or function,
        topics=chosen["topics"],
        dsn=dsn_of(session.config.database),
        rows=chosen["rows"],
        max_bytes=chosen["size"] or 0,
        lock=chosen["lock"],
        available_now=chosen["available_now"],
        interval_s=chosen["interval"].total_seconds(),
        max_failed_batches=failures,
        on_error=OnError(chosen["on_error"]),
        allow_single_attempt=one_attempt,
    )
    with session.connect() as conn:  # report an unreachable database before Spark starts
        if warning := check_attempts(conn, options):
            session.problem(warning)
    with spark_session("consume", master, conf) as spark:
        if source := source_file(called):
            spark.sparkContext.addPyFile(str(source))
        stop = _stop_on_signals()
        session.note(f"{options.consumer} works {', '.join(options.topics)}")
        ran = run(spark, called, options, partial(_report_batch, session), stop)
    return _conclude(session, ran)


def _stop_on_signals() -> SignalFlag:
    """Return a flag that the first signal sets, to stop in order; a second signal stops at once."""
    stop = SignalFlag()

    def handle(which: int, _frame: object) -> None:
        stop.set()
        signal.signal(which, signal.SIG_DFL)

    # Install these after Spark's handler of SIGINT, which would cancel the running batch.
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, handle)
    return stop


def _report_batch(output: Output, ran: BatchResult) -> None:
    record_run(RunReport(rows=ran.settled.total), ExitCode.FOUND_A_PROBLEM if ran.has_failed else ExitCode.OK)
    if output.as_json:
        output.record(ran.as_json())
    else:
        output.say(
            f"batch {ran.batch}: {plural(ran.settled.total, 'message')} in {ran.seconds:.1f} s: "
            f"{_format_counts(ran.settled)}"
        )
    if ran.has_failed and ran.error:
        output.problem(f"batch {ran.batch} failed: {last_line(ran.error)}")
    for id_, error in islice(ran.at_fault.items(), MAX_ERROR_LINES):
        output.problem(f"batch {ran.batch}: message {id_} failed alone: {last_line(error)}")
    if len(ran.at_fault) > MAX_ERROR_LINES:
        output.problem(f"batch {ran.batch}: and {len(ran.at_fault) - MAX_ERROR_LINES:,} more messages")


def _format_counts(settled: SettledCounts) -> str:
    """Return the results of messages as text: `9,998 success, 2 dead (1 rejected, 1 failed), 3 released`."""
    counts = {became: settled.counts.get(became, 0) for became in RESULT_TEXTS}
    said = [f"{count:,} {RESULT_TEXTS[became]}" for became, count in counts.items() if count]
    if settled.dead:
        dead = ", ".join(f"{settled.counts[result]:,} {result}" for result in DEAD if settled.counts.get(result))
        said.insert(1 if counts["success"] else 0, f"{settled.dead:,} dead ({dead})")
    if settled.lost:
        said.append(f"{settled.lost:,} lost")
    return ", ".join(said) or "none held"


def _conclude(output: Output, ran: ConsumerResult) -> int:
    if ran.failed_in_a_row:
        batches = "batch" if ran.failed_in_a_row == 1 else f"{ran.failed_in_a_row} batches"
        output.problem(
            f"the last {batches} failed, and what was not processed is back in the queue: see the errors above"
        )
    output.say(f"in all: {_format_counts(ran.settled)}")
    return ExitCode.FOUND_A_PROBLEM if ran.failed_in_a_row else ExitCode.OK
