"""`pgrouse pipeline consume`: a function over DataFrames works messages."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from pgrouse.errors import ConfigError
from pyspark_pgrouse.claim.batch import Ran, run
from pyspark_pgrouse.claim.desk import ClaimDesk
from pyspark_pgrouse.claim.function import find
from pyspark_pgrouse.claim.outcome import Settled
from tests.pipeline.claiming import streaming
from tests.server.postgres import Database
from tests.sql.queue import Queue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FUNCTIONS = """
from pyspark.sql import functions as f

def nothing(batch):
    pass

def some_are_bad(batch):
    verdict = f.when(f.col("payload") == "1", "reject").when(f.col("payload") == "2", "retry")
    return batch.where("payload IN ('1', '2')").select("id", verdict.alias("outcome"), f.lit("why").alias("reason"))

def raises(batch):
    raise ValueError(f"{batch.count()} bad rows")

def raises_when_it_is_computed(batch):
    return batch.select("id", f.raise_error(f.lit("lazy")).alias("outcome"))

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
    """A folder with a module of functions and the configuration of nothing."""
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
    ("name", "said"),
    [
        ("nothing", "'nothing' names no function: write module:function"),
        ("absent_module:f", "module absent_module cannot be imported: ModuleNotFoundError"),
        ("batch_functions:nothin", "batch_functions has no function nothin; did you mean nothing"),
        ("batch_functions:takes_two", "takes_two must take one argument, the DataFrame of the batch"),
    ],
)
def test_a_function_that_cannot_be_is_refused_with_the_nearest_name(folder: Path, name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        find(name, [folder])


def test_the_python_processes_of_executors_find_the_module_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find("batch_functions:nothing", [folder])

    assert subprocess.run([sys.executable, "-c", "import batch_functions"], check=False, cwd="/").returncode == 0


# A batch


def worked(spark: SparkSession, database: Database, function: str) -> Ran:
    """Work one batch of a stream by a function, without a query."""
    with streaming(database, consumer="c") as stream:
        claimed = stream.next()
        rows = [(row["id"], row["claim_id"], row["payload"]) for row in claimed]
        batch = spark.createDataFrame(rows, "id long, claim_id long, payload string")
        desk = ClaimDesk(database.dsn, "c")
        try:
            return run(find(f"batch_functions:{function}"), batch, 7, desk)
        finally:
            desk.close()


@pytest.mark.spark
def test_what_a_function_names_ends_so_and_the_rest_succeeds(
    spark: SparkSession, database: Database, queue: Queue, folder: Path
) -> None:
    queue.publish_many(4)

    ran = worked(spark, database, "some_are_bad")

    assert ran.settled == Settled({"reject": 1, "retry": 1, "success": 2})
    assert ended(queue) == [("1", "rejected"), ("2", "failed"), ("3", "success"), ("4", "success")]
    assert [row.error for row in queue.rows(ENDED)] == ["why", "why", None, None]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("raises", "ValueError: 2 bad rows"),
        ("raises_when_it_is_computed", "lazy"),
        ("names_no_outcome", "the DataFrame that it returned has no column outcome"),
        ("returns_a_number", "it returned a int: expected a DataFrame, or None if all is well"),
    ],
)
def test_if_a_function_raises_the_attempt_of_every_message_has_failed(
    spark: SparkSession, database: Database, queue: Queue, folder: Path, function: str, said: str
) -> None:
    queue.publish_many(2)

    ran = worked(spark, database, function)

    assert said in (ran.error or "")
    assert ended(queue) == [("1", "failed"), ("2", "failed")]
    assert all(said in row.error for row in queue.rows(ENDED))


@pytest.mark.spark
def test_a_failed_batch_is_tried_again_while_attempts_are_left(
    spark: SparkSession, database: Database, queue: Queue, folder: Path
) -> None:
    queue.policy(max_attempts=2)
    published = queue.publish()

    worked(spark, database, "raises")

    assert (queue.message(published).attempts, queue.message(published).claim_id) == (1, None)


def test_what_the_batch_lost_meanwhile_is_not_settled(database: Database, queue: Queue) -> None:
    queue.publish_many(2)
    with streaming(database, consumer="c") as stream:
        first, _ = stream.next()
        queue.call("cancel", [first["id"]])
        desk = ClaimDesk(database.dsn, "c")
        held = desk.held(None)  # type: ignore[arg-type] - the registry knows the claims
        desk.close()

    assert len(held) == 1


# The job


@pytest.fixture
def consume(
    spark: SparkSession, database: Database, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Result]]:
    """`consume("module:function", ...)` runs the job; the signals of this process are its own again afterwards."""
    from pgrouse.cli.root import root  # noqa: PLC0415

    monkeypatch.setenv("PGROUSE_DSN", database.dsn)
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    shared = ["--topics", "t", "--json"]
    yield lambda *given: CliRunner().invoke(root, ["pipeline", "consume", *given, *shared], standalone_mode=False)
    for each, handler in before.items():
        signal.signal(each, handler)


@pytest.mark.spark
def test_the_job_works_what_is_ready_and_tells_of_each_batch(
    consume: Callable[..., Result], queue: Queue, folder: Path
) -> None:
    queue.publish_many(5)

    result = consume("batch_functions:some_are_bad", "--rows", "3", "--available-now")

    told = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.return_value == 0, result.output
    assert [(batch["messages"], batch["success"], batch["reject"], batch["retry"]) for batch in told] == [
        (3, 1, 1, 1),
        (2, 2, 0, 0),
    ]
    assert queue.ids() == []
    assert queue.rows("SELECT FROM messages.worker") == []


@pytest.mark.spark
def test_the_job_ends_after_too_many_failed_batches_and_leaves_the_rest_ready(
    consume: Callable[..., Result], queue: Queue, folder: Path
) -> None:
    queue.publish_many(6)

    result = consume("batch_functions:raises", "--rows", "2", "--failures", "2", "--every", "100ms")

    assert result.return_value == 1, result.output
    assert "the last 2 batches failed" in result.stderr
    assert [result for _, result in ended(queue)] == ["failed"] * 4
    assert queue.value("SELECT count(*) FROM messages.message WHERE claim_id IS NULL") == 2


# Signals


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(200)
@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGINT])
def test_after_a_signal_the_batch_that_runs_ends_and_the_rest_stays_ready(
    database: Database, queue: Queue, folder: Path, eventually: Callable[..., object], which: signal.Signals
) -> None:
    queue.publish_many(3)
    command = [sys.executable, "-m", "pgrouse", "pipeline", "consume", "batch_functions:waits_for_the_gate"]
    with (folder / "said").open("wb") as said:
        job = subprocess.Popen(
            [*command, "--topics", "t", "--rows", "2", "--every", "100ms"],
            env={**os.environ, "PGROUSE_DSN": database.dsn},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
            # Whoever runs the tests in the background of a shell has made them deaf to Ctrl-C, and their children.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
        )
    try:
        eventually((folder / "began").exists, within_s=90)
        job.send_signal(which)
        (folder / "gate").touch()
        code = job.wait(60)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)

    assert code == 0, (folder / "said").read_text()
    assert [result for _, result in ended(queue)] == ["success"] * 2
    assert queue.value("SELECT count(*) FROM messages.message WHERE claim_id IS NULL AND attempts = 0") == 1
