"""`pgrouse pipeline consume`: a function over DataFrames processes messages."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, ClassVar

import pytest
from click.testing import CliRunner, Result

from pgrouse.errors import ConfigError, ExitCode
from pyspark_pgrouse.claim import consumer_locks, executor_claims
from pyspark_pgrouse.claim.batch import BatchResult
from pyspark_pgrouse.claim.batch_settler import BatchSettler
from pyspark_pgrouse.claim.batch_size import BatchSize
from pyspark_pgrouse.claim.claim_client import NAME_TIMEOUT_S, ClaimClient, ConsumerTaken
from pyspark_pgrouse.claim.consumer_locks import ConsumerLocks, HeldClaims
from pyspark_pgrouse.claim.consumer_options import ConsumerOptions
from pyspark_pgrouse.claim.executor_claims import ExecutorClaims
from pyspark_pgrouse.claim.locks_process import LocksProcess, LocksProcessEnded
from pyspark_pgrouse.claim.outcome import SettledCounts
from pyspark_pgrouse.claim.share import ShareRequest, ShareResult, serve
from pyspark_pgrouse.claim.user_function import find_function
from tests.pipeline.consuming import consumed
from tests.server.postgres import Database
from tests.sql.queue import Queue

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A job with a child that was forked, as a pool of processes has them.
JOB = """
import os, signal, sys
from pyspark_pgrouse.claim.consumer_locks import HeldClaims
from pyspark_pgrouse.claim.consumer_options import ConsumerOptions
from pyspark_pgrouse.claim.locks_process import LocksProcess

with LocksProcess(ConsumerOptions("c", ("t",), sys.argv[1])) as locks:
    locks.hold(HeldClaims((int(sys.argv[2]),), 2, 3_600))
    child = os.fork()
    if child:
        print(child, flush=True)
    signal.pause()
"""
FAILING_JOB = """
import os, signal, sys
from pyspark_pgrouse.claim.consumer_options import ConsumerOptions
from pyspark_pgrouse.claim.locks_process import LocksProcess

locks = LocksProcess(ConsumerOptions("c", ("t",), sys.argv[1]))
try:
    with locks:
        child = os.fork()
        if not child:
            os.close(1)
            signal.pause()
        raise ZeroDivisionError
except ZeroDivisionError:
    print(child, locks._process.poll())
"""
LOCKS = "SELECT topic, lock_expires_at FROM messages.message"
FUNCTIONS = """
from pyspark.sql import functions as f

def nothing(batch):
    pass

def some_are_bad(batch):
    verdict = f.when(f.col("payload") == "1", "reject").when(f.col("payload") == "2", "retry")
    return batch.where("payload IN ('1', '2')").select("id", verdict.alias("outcome"), f.lit("why").alias("reason"))

def raises(batch):
    raise ValueError(f"{batch.count()} bad rows")

def raises_over_two(batch):
    if bad := [row.payload for row in batch.where("payload IN ('2', '4')").select("payload").collect()]:
        raise ValueError(f"cannot do {bad}")

def raises_when_it_is_computed(batch):
    # Not of the batch: an error behind a Python source costs a new Python process.
    return batch.sparkSession.range(1).select("id", f.raise_error(f.lit("lazy")).alias("outcome"))

def waits_for_the_gate(batch):
    import pathlib, time
    pathlib.Path("began").touch()
    while not pathlib.Path("gate").exists():
        time.sleep(0.01)

def names_no_outcome(batch):
    return batch.select("id")

def returns_a_number(batch):
    return 3

def takes_two(batch, number):
    pass
"""
ENDED = "SELECT payload #>> '{}' AS payload, result, error FROM messages.message_archive ORDER BY id"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a module of functions and an empty configuration."""
    (tmp_path / "batch_functions.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("batch_functions", None)


def ended(queue: Queue) -> list[tuple[str, str]]:
    return [(row.payload, row.result) for row in queue.rows(ENDED)]


# The function is found before anything is claimed


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nothing", "'nothing' names no function: write module:function"),
        ("absent_module:f", "module absent_module cannot be imported: ModuleNotFoundError"),
        ("batch_functions:nothin", "batch_functions has no function nothin; did you mean nothing"),
        ("batch_functions:takes_two", "takes_two must take one argument, the DataFrame of the batch"),
    ],
)
def test_an_invalid_function_is_refused_with_the_nearest_name(folder: Path, name: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        find_function(name, [folder])


def test_the_python_processes_of_executors_find_the_module(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find_function("batch_functions:nothing", [folder])

    assert subprocess.run([sys.executable, "-c", "import batch_functions"], check=False, cwd="/").returncode == 0


# A batch


def worked(spark: SparkSession, database: Database, function: str) -> BatchResult:
    """Process the ready messages in one batch."""
    (ran,) = consumed(spark, database, find_function(f"batch_functions:{function}"))
    return ran


@pytest.mark.spark
def test_messages_that_a_function_names_have_its_outcome_and_the_others_succeed(
    spark: SparkSession, database: Database, queue: Queue, folder: Path
) -> None:
    queue.publish_many(4)

    ran = worked(spark, database, "some_are_bad")

    assert ran.settled == SettledCounts({"rejected": 1, "failed": 1, "success": 2})
    assert ended(queue) == [("1", "rejected"), ("2", "failed"), ("3", "success"), ("4", "success")]
    assert [row.error for row in queue.rows(ENDED)] == ["why", "why", None, None]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("raises", "bad rows"),
        ("raises_when_it_is_computed", "lazy"),
        ("names_no_outcome", "the DataFrame that it returned has no column outcome"),
        ("returns_a_number", "it returned a int: expected a DataFrame, or None if all is well"),
    ],
)
def test_a_function_that_always_raises_costs_one_attempt_in_total(
    spark: SparkSession, database: Database, queue: Queue, folder: Path, function: str, said: str
) -> None:
    first, *others = queue.publish_many(4)

    ran = worked(spark, database, function)

    assert said in (ran.error or "")
    assert (list(ran.at_fault), ran.has_failed) == ([first], True)
    assert ran.settled == SettledCounts({"failed": 1, "release": 3})
    assert ended(queue) == [("1", "failed")]
    assert said in queue.archived(first).error
    assert [(queue.message(id_).attempts, queue.message(id_).claim_id) for id_ in others] == [(0, None)] * 3


@pytest.mark.spark
def test_a_message_that_makes_the_function_raise_is_found_and_the_others_are_processed(
    spark: SparkSession, database: Database, queue: Queue, folder: Path
) -> None:
    queue.publish_many(5)

    ran = worked(spark, database, "raises_over_two")

    assert ran.settled == SettledCounts({"failed": 2, "success": 3})
    assert [result for _, result in ended(queue)] == ["success", "failed", "success", "failed", "success"]
    assert "cannot do ['2', '4']" in (ran.error or "")
    assert [error.splitlines()[-1] for error in ran.at_fault.values()] == [
        "ValueError: cannot do ['2']",
        "ValueError: cannot do ['4']",
    ]
    assert not ran.has_failed


@pytest.mark.spark
def test_a_batch_is_claimed_and_settled_by_a_task_for_each_core(
    spark: SparkSession, database: Database, queue: Queue
) -> None:
    queue.publish_many(500)
    seen: list[int] = []

    def load(batch: DataFrame) -> None:
        seen.extend(row.id for row in batch.select("id").collect())
        assert batch.rdd.getNumPartitions() == 2

    (ran,) = consumed(spark, database, load)

    assert ran.settled == SettledCounts({"success": 500})
    assert len(set(seen)) == len(seen) == 500
    sessions = "SELECT count(DISTINCT claim_id) FROM messages.message_archive"
    assert queue.value(sessions) == 2


@pytest.mark.spark
def test_what_a_task_claimed_before_it_failed_is_released(
    spark: SparkSession, database: Database, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.publish_many(3)
    queue.policy(max_attempts=2)
    # As a task does whose executor dies before its answer arrives; the next attempt says that it is one.
    queue.claim(worker="c", limit=1)
    options = ConsumerOptions("c", ("t",), database.dsn)
    with closing(BatchSettler(database.dsn, "c")) as settler:
        claims = ExecutorClaims(spark, options, settler)
        monkeypatch.setattr(executor_claims, "serve", second_attempt)
        batch = claims.claim(10)

    assert len(batch) == 2
    waiting = queue.rows("SELECT attempts FROM messages.message WHERE claim_id IS NULL")
    assert [row.attempts for row in waiting] == [0]


def second_attempt(options: ConsumerOptions, requests: list[ShareRequest]) -> list[ShareResult]:
    return [replace(result, may_have_orphans=True) for result in serve(options, requests)]


# How many messages a batch has


def test_a_batch_that_takes_longer_than_a_third_of_its_lock_makes_the_next_one_smaller() -> None:
    size = BatchSize(10_000)

    size.record(1_000, 100.0, 30.0)

    assert size.rows == 100


def test_a_batch_has_one_message_at_least_and_a_partial_one_does_not_grow() -> None:
    slow, partial = BatchSize(10), BatchSize(10_000)

    slow.record(1, 3_600.0, 1.0)
    partial.record(10, 0.1, 30.0)

    assert (slow.rows, partial.rows) == (1, 1_000)


# The process that holds the locks


@pytest.fixture
def options(database: Database) -> ConsumerOptions:
    return ConsumerOptions("c", ("t",), database.dsn, rows=10)


@pytest.fixture
def locks(options: ConsumerOptions) -> Iterator[ConsumerLocks]:
    """The locks of a process, in this one."""
    locks = ConsumerLocks(options)
    locks.start()
    yield locks
    locks.close()


def claimed(queue: Queue) -> HeldClaims:
    rows = queue.claim(worker="c", limit=10)
    return HeldClaims((rows[0].claim_id,), len(rows), rows[0].lock_duration_s)


def test_locks_are_extended_while_a_batch_runs(
    queue: Queue, options: ConsumerOptions, eventually: Callable[..., object]
) -> None:
    queue.policy("t", lock_duration="2s")
    queue.policy("u", lock_duration="1h")
    for topic in ("t", "u"):
        queue.publish_many(1, topic)
    with LocksProcess(options) as locks:
        # One that has just been claimed, and one that a fast task has held for more than a third of its lock.
        for topic, age_s in (("t", 0), ("u", 1_300)):
            (held,) = queue.claim(topic, worker="c")
            before = queue.message(held.id).lock_expires_at
            locks.hold(HeldClaims((held.claim_id,), 1, held.lock_duration_s, age_s=age_s))

            eventually(lambda i=held.id, at=before: queue.message(i).lock_expires_at > at, within_s=60)


def test_a_message_beyond_its_timeout_keeps_the_rest_of_its_lock(queue: Queue, locks: ConsumerLocks) -> None:
    queue.policy("t", lock_duration="1h", timeout="20m")
    queue.policy("u", lock_duration="1h")
    queue.publish_many(1, "t")
    queue.publish_many(1, "u")
    claims = [queue.claim(topic, worker="c")[0] for topic in ("t", "u")]
    before = dict(queue.conn.execute(LOCKS).fetchall())
    held = HeldClaims(tuple(each.claim_id for each in claims), 2, 3_600, timeout_s=1_200, age_s=1_300)
    locks.hold(held, time.monotonic())

    locks.tend()

    after = dict(queue.conn.execute(LOCKS).fetchall())
    assert {topic for topic in after if after[topic] > before[topic]} == {"u"}


def test_payloads_are_not_read_to_extend_locks_before_the_first_timeout(
    queue: Queue, locks: ConsumerLocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.policy(lock_duration="1h", timeout="40m")
    queue.publish_many(2)
    monkeypatch.setattr(ClaimClient, "timeouts", pytest.fail)
    before = dict(queue.conn.execute(LOCKS).fetchall())
    locks.hold(replace(claimed(queue), timeout_s=2_400, age_s=1_300), time.monotonic())

    locks.tend()

    assert dict(queue.conn.execute(LOCKS).fetchall())["t"] != before["t"]


def test_locks_are_extended_while_the_name_cannot_be_taken_again(
    database: Database, queue: Queue, locks: ConsumerLocks
) -> None:
    queue.policy(lock_duration="1h")
    queue.publish_many(2)
    locks.hold(replace(claimed(queue), age_s=1_300), time.monotonic())
    before = queue.value("SELECT min(lock_expires_at) FROM messages.message")
    # As when the server believes in a session that the network has lost.
    stale = database.connect()
    with stale.transaction():
        break_sessions(queue)
        while not stale.execute("SELECT messages.lock_consumer('c')").fetchone()[0]:  # type: ignore[index]
            pass

    consumer_locks._tend(locks)

    assert queue.value("SELECT min(lock_expires_at) FROM messages.message") > before
    stale.close()


def test_a_process_ends_when_another_job_has_taken_its_name(
    queue: Queue, options: ConsumerOptions, locks: ConsumerLocks
) -> None:
    locks._named._retry_timeout_s = 60
    break_sessions(queue)
    with LocksProcess(options), pytest.raises(ConsumerTaken):
        consumer_locks._tend(locks)


def break_sessions(queue: Queue) -> None:
    queue.conn.execute(
        "SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity AS a"
        " WHERE a.application_name = 'pgrouse-spark' AND a.datname = current_database()"
    )


@pytest.mark.long
def test_a_job_whose_child_survives_it_gives_back_what_it_held(
    database: Database, queue: Queue, eventually: Callable[..., object], folder: Path
) -> None:
    queue.policy(max_attempts=2, lock_duration="1h")
    queue.publish_many(2)
    (held,) = {each.claim_id for each in queue.claim(worker="c")}
    (folder / "job.py").write_text(JOB)

    command = [sys.executable, folder / "job.py", database.dsn, str(held)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None
        child = int(job.stdout.readline())
        job.kill()
    try:
        eventually(lambda: queue.rows("SELECT FROM messages.worker") == [], within_s=60)
        assert queue.value("SELECT count(*) FROM messages.message WHERE claim_id IS NULL AND attempts = 0") == 2
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_consumer_that_left_the_registry_enters_it_again(queue: Queue, locks: ConsumerLocks) -> None:
    queue.conn.execute("DELETE FROM messages.worker")

    locks.tend()

    assert [row.name for row in queue.rows("SELECT name FROM messages.worker")] == ["c"]
    locks.release(ended=True)
    assert queue.rows("SELECT FROM messages.worker") == []


@pytest.mark.long
def test_messages_are_given_back_while_another_session_holds_one_of_them(
    database: Database, queue: Queue, locks: ConsumerLocks
) -> None:
    queue.policy(max_attempts=2, lock_duration="1h")
    queue.publish_many(2)
    locks.hold(claimed(queue), time.monotonic())
    blocking = database.connect()
    blocking.execute("BEGIN")
    blocking.execute("SELECT FROM messages.message FOR UPDATE")
    later = Timer(3.0, blocking.rollback)
    later.start()

    locks.release(ended=True)

    later.join()
    blocking.close()
    assert queue.value("SELECT count(*) FROM messages.message WHERE claim_id IS NULL AND attempts = 0") == 2


@pytest.mark.long
def test_a_consumer_whose_row_in_the_registry_is_held_enters_it_later(
    database: Database, queue: Queue, options: ConsumerOptions, locks: ConsumerLocks
) -> None:
    locks.close()
    with database.connect() as blocking, blocking.transaction():
        blocking.execute("UPDATE messages.worker SET host = 'of-an-older-job'")
        locks.start()
    blocking.close()
    assert [row.host for row in queue.rows("SELECT host FROM messages.worker")] == ["of-an-older-job"]

    locks.tend()

    assert [row.host for row in queue.rows("SELECT host FROM messages.worker")] == [socket.gethostname()]


@pytest.mark.long
def test_a_job_that_failed_and_has_a_child_ends_the_process(
    database: Database, options: ConsumerOptions, folder: Path
) -> None:
    (folder / "job.py").write_text(FAILING_JOB)

    with subprocess.Popen([sys.executable, folder / "job.py", database.dsn], stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None
        child, code = map(int, job.stdout.read().split())

    os.kill(child, signal.SIGKILL)
    assert code == 0


@pytest.mark.long
def test_a_job_that_failed_gives_back_what_its_tasks_claim_a_moment_later(
    queue: Queue, options: ConsumerOptions
) -> None:
    queue.policy(max_attempts=2, lock_duration="1h")
    queue.publish_many(2)
    locks = LocksProcess(options)
    locks.__enter__()
    later = Timer(0.5, lambda: claimed(queue))
    later.start()

    locks.__exit__(RuntimeError)

    later.join()
    assert queue.value("SELECT count(*) FROM messages.message WHERE claim_id IS NULL AND attempts = 0") == 2


@pytest.mark.long
def test_a_job_that_is_gone_gives_back_what_it_held_and_what_it_had_just_claimed(
    queue: Queue, options: ConsumerOptions, eventually: Callable[..., object]
) -> None:
    queue.policy(max_attempts=2, lock_duration="1h")
    queue.publish_many(12)
    locks = LocksProcess(options)
    locks.__enter__()
    locks.hold(claimed(queue))
    claimed(queue)

    # As the kernel does when the job is killed.
    locks.hang_up()

    eventually(lambda: queue.rows("SELECT FROM messages.worker") == [], within_s=60)
    left = queue.rows("SELECT DISTINCT attempts, claim_id FROM messages.message")
    assert [(row.attempts, row.claim_id) for row in left] == [(0, None)]


def test_a_stop_of_all_processes_leaves_the_locks_to_the_end_of_the_job(queue: Queue, options: ConsumerOptions) -> None:
    queue.policy(max_attempts=2, lock_duration="1h")
    queue.publish_many(2)
    with LocksProcess(options) as locks:
        os.kill(locks.pid, signal.SIGTERM)
        locks.hold(claimed(queue))
        assert queue.value("SELECT count(*) FROM messages.message WHERE claim_id IS NOT NULL") == 2

    assert queue.value("SELECT count(*) FROM messages.message WHERE claim_id IS NULL AND attempts = 0") == 2


@pytest.mark.parametrize("name_timeout_s", [0.5, pytest.param(NAME_TIMEOUT_S, marks=pytest.mark.long)])
def test_a_second_job_of_the_same_consumer_is_refused(options: ConsumerOptions, name_timeout_s: float) -> None:
    with (
        LocksProcess(options),
        pytest.raises(ConsumerTaken, match="consumer c works already in process"),
        LocksProcess(options, name_timeout_s),
    ):
        pass


def test_a_job_notices_that_its_locks_are_not_extended_any_more(options: ConsumerOptions) -> None:
    with LocksProcess(options) as locks:
        shown = Path(f"/proc/{locks.pid}/cmdline").read_text()
        assert "consumer_locks" in shown
        assert str(options.dsn) not in shown

        os.kill(locks.pid, signal.SIGKILL)
        os.waitid(os.P_PID, locks.pid, os.WEXITED | os.WNOWAIT)

        with pytest.raises(LocksProcessEnded, match="the process that extends the locks"):
            locks.hold(HeldClaims())


# The job


@pytest.fixture
def consume(
    spark: SparkSession, database: Database, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Result]]:
    """`consume("module:function", ...)` runs the job; the signal handlers of this process are restored afterwards."""
    from pgrouse.cli.root import root  # noqa: PLC0415

    monkeypatch.setenv("PGROUSE_DSN", database.dsn)
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}

    def run(*given: str, as_json: bool = True) -> Result:
        shared = ["--topics", "t", *(["--json"] if as_json else [])]
        return CliRunner().invoke(root, ["pipeline", "consume", *given, *shared], standalone_mode=False)

    yield run
    for each, handler in before.items():
        signal.signal(each, handler)


@pytest.mark.spark
def test_the_job_processes_ready_messages_and_reports_the_counts_of_each_batch(
    consume: Callable[..., Result], queue: Queue, folder: Path
) -> None:
    queue.publish_many(5)

    result = consume("batch_functions:some_are_bad", "--rows", "3", "--available-now", "--allow-single-attempt")

    batches = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.return_value == 0, result.output
    counted = ("messages", "success", "rejected", "failed", "retry", "dead")
    assert [tuple(batch[key] for key in counted) for batch in batches] == [(3, 1, 1, 1, 0, 2), (2, 2, 0, 0, 0, 0)]
    assert queue.ids() == []
    assert queue.rows("SELECT FROM messages.worker") == []


@pytest.mark.spark
def test_the_job_ends_after_too_many_failed_batches_and_kills_none_of_their_messages(
    consume: Callable[..., Result], queue: Queue, folder: Path
) -> None:
    queue.policy(max_attempts=3, backoff={"kind": "constant", "base": "1h"})
    queue.publish_many(6)

    result = consume("batch_functions:raises", "--rows", "3", "--max-failed-batches", "2", "--interval", "100ms")

    assert result.return_value == 1, result.output
    assert "the last 2 batches failed, and what was not processed is back in the queue" in result.stderr
    assert ended(queue) == []
    # One message of each batch failed alone.
    attempts = queue.rows("SELECT attempts, claim_id FROM messages.message ORDER BY attempts")
    assert [(row.attempts, row.claim_id) for row in attempts] == [(0, None)] * 4 + [(1, None)] * 2


def test_speculative_tasks_are_refused(database: Database) -> None:
    options = ConsumerOptions("c", ("t",), database.dsn)

    with closing(BatchSettler(database.dsn, "c")) as settler, pytest.raises(ConfigError, match="both would claim"):
        ExecutorClaims(Speculative(), options, settler)  # type: ignore[arg-type]


class Speculative:
    """A session of Spark whose tasks may run twice."""

    conf: ClassVar = {"spark.speculation": "true"}


@pytest.mark.spark
def test_a_failed_last_batch_ends_the_job_with_1(consume: Callable[..., Result], queue: Queue, folder: Path) -> None:
    queue.policy(max_attempts=3)
    queue.publish_many(3)

    result = consume("batch_functions:raises", "--available-now", as_json=False)

    assert result.return_value == 1, result.output
    assert "3 messages in" in result.stdout
    assert result.stdout.endswith("in all: 1 to retry later, 2 released\n")
    assert "the last batch failed" in result.stderr


@pytest.mark.spark
def test_the_printed_summary_counts_deaths(consume: Callable[..., Result], queue: Queue, folder: Path) -> None:
    queue.policy(max_attempts=1)
    published = queue.publish_many(5)

    result = consume("batch_functions:raises_over_two", "--available-now", "--allow-single-attempt", as_json=False)

    assert result.return_value == 0, result.output
    assert result.stdout.endswith("in all: 3 success, 2 dead (2 failed)\n")
    assert f"batch 0: message {published[1]} failed alone: ValueError: cannot do ['2']" in result.stderr
    assert "retry" not in result.stdout
    assert "t: max_attempts is 1" in result.stderr
    assert "`pgrouse topic set t max_attempts=5`" in result.stderr


def test_topics_with_one_attempt_are_refused_before_spark_starts(
    database: Database, queue: Queue, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pgrouse.cli.root import root  # noqa: PLC0415

    monkeypatch.setenv("PGROUSE_DSN", database.dsn)
    queue.policy("twice", max_attempts=2)
    command = ["pipeline", "consume", "batch_functions:nothing", "--topics", "twice, t"]

    with pytest.raises(ConfigError) as refused:
        CliRunner().invoke(root, command, standalone_mode=False, catch_exceptions=False)

    output = str(refused.value)
    assert output.startswith("t: max_attempts is 1")
    assert "`pgrouse topic set t max_attempts=5`" in output
    assert "--allow-single-attempt" in output


# Signals


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_running_batch_end_and_the_other_messages_stay_ready(
    database: Database, queue: Queue, folder: Path, eventually: Callable[..., object], which: signal.Signals
) -> None:
    queue.publish_many(3)
    queue.policy(max_attempts=2)
    job = _began(database, folder, eventually)
    try:
        job.send_signal(which)
        (folder / "gate").touch()
        code = job.wait(60)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)

    assert code == 0, (folder / "said").read_text()
    assert [result for _, result in ended(queue)] == ["success"] * 2
    assert queue.value("SELECT count(*) FROM messages.message WHERE claim_id IS NULL AND attempts = 0") == 1


# Kills


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("who", ["jvm", "driver"])
def test_a_kill_during_a_batch_releases_its_messages_with_their_attempts(
    database: Database, queue: Queue, folder: Path, eventually: Callable[..., object], who: str
) -> None:
    queue.policy(max_attempts=2, lock_duration="1h")
    queue.publish_many(3)
    job = _began(database, folder, eventually)
    try:
        os.kill(_jvm(job.pid) if who == "jvm" else job.pid, signal.SIGKILL)
        (folder / "gate").touch()
        code = job.wait(60)
        eventually(lambda: queue.rows("SELECT FROM messages.worker") == [], within_s=60)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)

    said = (folder / "said").read_text()
    assert code == (75 if who == "jvm" else -signal.SIGKILL), said
    if who == "jvm":
        assert "pgrouse: Spark's JVM has ended" in said.splitlines()[-1]
        assert "Traceback" not in said
    left = queue.rows("SELECT attempts, runs, claim_id FROM messages.message ORDER BY runs DESC")
    assert [(row.attempts, row.runs, row.claim_id) for row in left] == [(0, 1, None)] * 2 + [(0, 0, None)]


def _jvm(pid: int) -> int:
    """Return the child of the job that runs Java; the other one holds its locks."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    (jvm,) = [child for child in children if Path(f"/proc/{child}/comm").read_text().strip() == "java"]
    return int(jvm)


def _began(database: Database, folder: Path, eventually: Callable[..., object]) -> subprocess.Popen[bytes]:
    """Start the job, and wait until its first batch has begun."""
    for _ in range(5):
        job = _started(database, folder)
        try:
            eventually(lambda job=job: (folder / "began").exists() or job.poll() is not None, within_s=150)
        except BaseException:
            os.killpg(job.pid, signal.SIGKILL)
            raise
        if job.poll() is None:
            return job
        # 75: the machine was too busy for Spark.
        assert job.returncode == ExitCode.TRY_AGAIN, (folder / "said").read_text()
    raise AssertionError((folder / "said").read_text())


def _started(database: Database, folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "pgrouse", "pipeline", "consume", "batch_functions:waits_for_the_gate"]
    with (folder / "said").open("wb") as said:
        return subprocess.Popen(
            [*command, "--topics", "t", "--rows", "2", "--interval", "100ms"],
            env={**os.environ, "PGROUSE_DSN": database.dsn},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
            # A shell that runs the tests in the background makes them, and their children, ignore Ctrl-C.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
        )
