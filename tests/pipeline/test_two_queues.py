"""Two queues in one database: the jobs work on the one that they are told, and their lakes do not meet."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pgrouse import migrate, use_schema
from pgrouse.database import schema_name
from pgrouse.errors import ConfigError
from pyspark_pgrouse.claim.consumer_options import ConsumerOptions
from pyspark_pgrouse.claim.locks_process import LocksProcess
from pyspark_pgrouse.connection.connection import connect
from pyspark_pgrouse.connection.queue_dsn import queue_dsn
from pyspark_pgrouse.lake.lake import Lake
from pyspark_pgrouse.read.position import check_queue
from tests.cli.conftest import folder, shell
from tests.cli.shell import Shell
from tests.pipeline.lakes import archive, exported, fill, ids, lake
from tests.server.postgres import Database
from tests.sql.queue import Queue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["folder", "lake", "shell"]

NAME = 'Order "q" 100'
FUNCTIONS = """
from pyspark.sql import functions as f

def some_are_bad(batch):
    return batch.where("payload = '2'").select("id", f.lit("reject").alias("outcome"), f.lit("why").alias("reason"))
"""


@pytest.fixture(autouse=True)
def _no_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default of the process, which commands set in this one, ends with the test."""
    monkeypatch.setattr(schema_name, "_default", None)


@pytest.fixture
def ours(own_database: Database) -> Queue:
    """The queue with the other name."""
    migrate(own_database.dsn, schema=NAME)
    with use_schema(NAME):
        return Queue(own_database.connect())


@pytest.fixture
def dsn(ours: Queue, own_database: Database) -> Any:
    """What has the connection string of that queue."""
    return SimpleNamespace(dsn=queue_dsn(own_database.dsn, NAME))


def test_an_export_of_the_other_queue_to_the_same_lake_is_refused(
    own_queue: Queue, own_database: Database, ours: Queue, dsn: Any, lake: str
) -> None:
    fill(own_queue, 30)
    exported(own_database, lake)
    fill(ours, 40, first=1000)
    fill(own_queue, 5)

    with pytest.raises(ConfigError, match="holds the archive of another queue"):
        exported(dsn, lake)
    assert ours.rows("SELECT FROM messages.export_cursor") == []
    exported(own_database, lake)
    exported(dsn, f"{lake}2")

    assert ids(lake) == archive(own_queue)
    assert ids(f"{lake}2") == archive(ours)


def test_a_position_of_a_queue_is_valid_after_renames_and_not_in_the_other_queue(
    own_queue: Queue, own_database: Database, ours: Queue, dsn: Any, lake: str
) -> None:
    exported(own_database, lake)
    position = Lake.open(lake).position

    with connect(dsn.dsn) as conn, pytest.raises(ConfigError, match="this position is of another queue"):
        check_queue(conn, position)
    own_queue.conn.execute("ALTER SCHEMA messages RENAME TO renamed")
    with connect(queue_dsn(own_database.dsn, "renamed")) as conn:
        check_queue(conn, position)


def test_the_process_that_holds_the_locks_of_a_consumer_works_on_its_queue(
    own_queue: Queue, ours: Queue, dsn: Any
) -> None:
    with LocksProcess(ConsumerOptions("c", ("t",), dsn.dsn)):
        leases = [[row.name for row in queue.rows("SELECT name FROM messages.lease")] for queue in (ours, own_queue)]

    assert leases == [["c"], []]


@pytest.fixture
def _signals() -> Iterator[None]:
    """The signal handlers of this process are restored: a consumer sets its own."""
    before = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


@pytest.mark.spark
@pytest.mark.usefixtures("_signals")
def test_all_jobs_work_on_the_queue_that_the_configuration_names(
    spark: SparkSession, own_queue: Queue, own_database: Database, ours: Queue, shell: Shell, folder: Path, lake: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    # In the file only: a process that is started does not inherit it.
    (folder / "pgrouse.toml").write_text(f"[database]\ndsn = {json.dumps(own_database.dsn)}\nschema = '{NAME}'\n")
    (folder / "in.jsonl").write_text("".join(f'{{"topic": "t", "payload": {n}}}\n' for n in range(1, 4)))
    (folder / "functions_of_ours.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", "")
    fill(own_queue, 7, first=1000)

    def pgrouse(*command: object) -> Any:
        ended = shell("pipeline", *command, "--json")
        assert ended.code == 0, ended.err
        return ended

    pgrouse("publish", folder / "in.jsonl")
    consume = ("--topics", "t", "--available-now", "--allow-single-attempt")
    consumed = pgrouse("consume", "functions_of_ours:some_are_bad", *consume)
    exported = pgrouse("export", lake).object
    report = pgrouse("report", "--since", "1h", "--out", folder / "report").object
    of_lake = pgrouse("report", "--lake", lake, "--since", "1h", "--out", folder / "lake_report").object
    redriven = pgrouse("redrive", "--lake", lake, "--where", "topic = 't'").objects
    reader = spark.read.format("pgrouse").option("dsn", own_database.dsn).option("schema", NAME)
    read = reader.option("payload", "json").load().collect()

    assert consumed.objects[0]["messages"] == 3
    assert (exported["rows"], report["read"], of_lake["read"]) == (3, 3, 3)
    assert sorted((row.payload, row.result) for row in read) == [("1", "success"), ("2", "rejected"), ("3", "success")]
    assert redriven
    assert [row.payload for row in ours.rows("SELECT payload FROM messages.message")] == [2]
    assert len(archive(own_queue)) == 7
    assert own_queue.rows("SELECT FROM messages.message") == []
    assert own_queue.rows("SELECT FROM messages.worker") == []
    assert own_queue.rows("SELECT FROM messages.export_cursor") == []
