"""`pgrouse pipeline export`: every archived row is in the lake once, whatever happens."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from pgrouse.errors import ConfigError
from pgrouse.terminal.command import CliSession
from pyspark_pgrouse.connection.connection import connect
from pyspark_pgrouse.errors import LakeUnwritable
from pyspark_pgrouse.jobs.export import ExportRunner, Maintenance, export
from pyspark_pgrouse.lake import export as lake_export
from pyspark_pgrouse.lake.columns import ColumnChoice
from pyspark_pgrouse.lake.cursor import ExportConflict, ExportCursor, held
from pyspark_pgrouse.lake.export import Export, ExportOptions
from pyspark_pgrouse.lake.lake import Lake
from pyspark_pgrouse.lake.maintenance import optimize, vacuum
from tests.pipeline.lakes import archive, data_files, exported, fill, ids, killed, lake, one_by_one, rows
from tests.server.postgres import Database
from tests.sql.queue import Queue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["lake"]


@pytest.fixture(autouse=True)
def _small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a batch of 100 rows be split, too."""
    monkeypatch.setattr(lake_export, "LEAST_ROWS", 10)


def position(queue: Queue, name: str = "default") -> tuple[str, int] | None:
    row = queue.row("SELECT xid::text AS xid, id FROM messages.export_cursor WHERE name = %s", [name])
    return None if row is None else (row.xid, row.id)


def end(lake: str) -> tuple[str, int]:
    position = Lake.open(lake).position
    return position.xid, position.id


# What is in the lake


@pytest.mark.long
def test_every_archived_row_is_in_the_lake_once(queue: Queue, database: Database, lake: str) -> None:
    fill(queue, 250)

    batches = exported(database, lake, partitions=3)

    assert len(batches) == 3
    assert all(len({file.path.split("/part-")[1][:5] for file in batch.files}) == 3 for batch in batches[:2])
    assert ids(lake) == archive(queue)
    assert position(queue) == end(lake)


# Each breaks a reader of JSON.
PAYLOADS = ("1e1000", '"\\ud834\\udd1e"', "[" * 500 + "]" * 500, '{"b": 9007199254740993}', '"\'\\";--"')


def test_a_row_is_unchanged(queue: Queue, database: Database, lake: str) -> None:
    for id_, payload in zip(fill(queue, 12), PAYLOADS, strict=False):
        change = "UPDATE messages.message_archive SET payload = %s::jsonb, body = NULL WHERE id = %s"
        queue.conn.execute(change, [payload, id_])
    exported(database, lake)
    columns = [row.attname for row in queue.rows(
        "SELECT attname FROM pg_attribute "
        "WHERE attrelid = 'messages.message_archive'::regclass AND attnum > 0 ORDER BY attnum"
    )]  # fmt: skip
    text = {"payload", "headers", "state", "progress", "history", "output"}
    number = {"archive_xid": "archive_xid::text::bigint"}
    wanted = ", ".join(f"{name}::text" if name in text else number.get(name, name) for name in columns)

    there = rows(lake, ", ".join(columns))

    assert there == [tuple(row) for row in queue.rows(f"SELECT {wanted} FROM messages.message_archive ORDER BY id")]


def test_date_and_topic_are_in_the_path_and_in_the_log(queue: Queue, database: Database, lake: str) -> None:
    fill(queue, 30)

    exported(database, lake)

    day = "SELECT id, (archived_at AT TIME ZONE 'UTC')::date, topic FROM messages.message_archive ORDER BY id"
    assert rows(lake, "id, date, topic") == [tuple(row) for row in queue.rows(day)]
    assert {"/".join(path.split("/")[:2]) for path in data_files(lake)} == {
        f"date={row[1]}/topic={row[2].replace(':', '%3A')}" for row in queue.rows(day)
    }


def test_the_next_run_writes_the_new_rows(queue: Queue, database: Database, lake: str) -> None:
    fill(queue, 20)
    exported(database, lake)
    assert exported(database, lake) == []
    fill(queue, 5)

    (batch,) = exported(database, lake)

    assert batch.rows == 5
    assert ids(lake) == archive(queue)


def test_rows_that_a_transaction_commits_late_are_exported_later(
    queue: Queue, other: Queue, database: Database, lake: str
) -> None:
    with other.conn.transaction():
        fill(other, 5, first=1000)
        fill(queue, 1, topic="later")
        exported(database, lake)
        assert ids(lake) == []

    exported(database, lake)

    assert ids(lake) == archive(queue)


def test_a_lake_of_some_topics_has_no_others_and_does_not_delay_their_retention(
    queue: Queue, database: Database, lake: str
) -> None:
    fill(queue, 30)

    exported(database, lake, topics=("mail", "a:b"))
    fill(queue, 30)
    exported(database, lake)

    assert ids(lake) == [
        row.id for row in queue.rows("SELECT id FROM messages.message_archive WHERE topic <> '007' ORDER BY id")
    ]
    assert queue.row("SELECT * FROM messages.list_exports()").oldest_at is None
    with pytest.raises(ConfigError, match="was made for --topics mail,a:b: leave --topics out"):
        exported(database, lake, topics=("b",))
    with pytest.raises(ConfigError, match="since the beginning: leave --since out"):
        exported(database, lake, since=datetime.now(UTC))


def test_a_time_that_a_lake_cannot_hold_is_null_and_does_not_stop_the_export(
    queue: Queue, database: Database, lake: str
) -> None:
    fill(queue, 12, "t")
    change = "UPDATE messages.message_archive SET expires_at = %s, created_at = %s, archived_at = %s WHERE id = %s"
    for id_, moment in enumerate(("infinity", "-infinity", "4713-01-01 BC", "294276-12-31"), start=1):
        queue.conn.execute(change, [moment, moment, moment, id_])

    exported(database, lake)

    assert ids(lake) == archive(queue)
    assert rows(lake, "expires_at, created_at, archived_at", "id <= 4") == [(None, None, None)] * 4


def test_a_new_lake_of_many_topics_is_partitioned_by_date_only(
    queue: Queue, database: Database, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_export, "MANY_TOPICS", 2)
    fill(queue, 12)
    exported(database, lake)
    assert Lake.open(lake).partition_by == ("date",)

    monkeypatch.undo()
    fill(queue, 12)
    exported(database, lake)

    assert ids(lake) == archive(queue)
    with pytest.raises(ConfigError, match="was made with --partition-by date: leave --partition-by out"):
        exported(database, lake, partition_by=("date", "topic"))


def test_a_lake_since_a_time_has_nothing_older(queue: Queue, database: Database, lake: str) -> None:
    fill(queue, 5, days_ago=10)
    young = fill(queue, 5)

    exported(database, lake, since=datetime.now(UTC) - timedelta(days=5))

    assert ids(lake) == young


def test_an_added_column_is_null_in_older_files(own_database: Database, lake: str) -> None:
    queue = Queue(own_database.connect())
    fill(queue, 3)
    exported(own_database, lake)
    queue.conn.execute("ALTER TABLE messages.message_archive ADD COLUMN extra integer DEFAULT 7, DROP COLUMN progress")
    fill(queue, 3)

    exported(own_database, lake)

    assert [row[0] for row in rows(lake, "extra")] == [None] * 3 + [7] * 3
    assert {"extra", "progress"} <= set(Lake.open(lake).schema.names)


@pytest.mark.long
def test_a_lake_has_only_the_chosen_columns(queue: Queue, database: Database, lake: str) -> None:
    fill(queue, 2)
    queue.conn.execute("UPDATE messages.message_archive SET key = 'k' WHERE id = 1")

    exported(database, lake, choice=ColumnChoice(("key", "payload", "result"), ("payload",), ("key",)))
    fill(queue, 1)
    exported(database, lake)

    assert set(Lake.open(lake).schema.names) == {"id", "topic", "key", "result", "archived_at", "archive_xid", "date"}
    assert [row[0] for row in rows(lake, "key")] == [hashlib.sha256(b"k").hexdigest(), None, None]
    with pytest.raises(ConfigError, match="was made with --columns key,payload,result --exclude payload --mask key: "):
        exported(database, lake, choice=ColumnChoice(mask=("key",)))


@pytest.mark.parametrize(
    ("choice", "error"),
    [
        (ColumnChoice(only=("nosuch",)), "--columns: the archive has no column nosuch; it has id, topic, "),
        (ColumnChoice(exclude=("archived_at",)), "--exclude: an export needs the column archived_at as it is"),
        (ColumnChoice(mask=("topic",)), "--mask: an export needs the column topic as it is"),
    ],
)
def test_a_choice_that_cannot_be_made_is_refused(
    queue: Queue, database: Database, lake: str, choice: ColumnChoice, error: str
) -> None:
    with pytest.raises(ConfigError, match=error):
        exported(database, lake, choice=choice)

    assert not Path(lake).exists()


# Crashes


@pytest.mark.long
def test_a_kill_before_the_commit_leaves_nothing_that_a_reader_sees(
    queue: Queue, database: Database, lake: str
) -> None:
    fill(queue, 100)

    def killed_late(work: Callable[[Any], Any], parts: Any) -> Any:
        one_by_one(work, parts)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        exported(database, lake, killed_late)
    assert (len(data_files(lake)), ids(lake)) == (6, [])

    exported(database, lake)

    assert ids(lake) == archive(queue)
    assert len(data_files(lake)) == 12
    vacuum(Lake.open(lake), timedelta(0))
    assert len(data_files(lake)) == len(Lake.open(lake).files())


def test_a_batch_is_not_written_again_after_a_kill_behind_the_commit(
    queue: Queue, database: Database, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(queue, 100)
    with monkeypatch.context() as broken:
        broken.setattr(ExportCursor, "advance", killed)
        with pytest.raises(KeyboardInterrupt):
            exported(database, lake)
    assert (ids(lake), position(queue)) == (archive(queue), ("0", 0))

    assert exported(database, lake) == []

    assert ids(lake) == archive(queue)
    assert position(queue) == end(lake)


def test_a_failed_task_is_reported_and_its_batch_leaves_nothing(queue: Queue, database: Database, lake: str) -> None:
    fill(queue, 100)

    def failing(work: Callable[[Any], Any], parts: Any) -> Any:
        work(parts[0])
        raise LakeUnwritable("disk full")

    with pytest.raises(LakeUnwritable, match="disk full"):
        exported(database, lake, failing)

    assert data_files(lake) == set()


# The server takes a moment to see that a process is gone.
LOCK_IS_FREE = """
    SELECT count(*) = 0 FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database
    WHERE l.locktype = 'advisory' AND d.datname = current_database()"""
# One export and the merging of its files, as a separate process. It pauses between a commit and the move of the
# position: kills meet that, too.
PROGRAM = """
import sys
import time
from tests.pipeline import lakes
from pyspark_pgrouse.lake import export as lake_export
from pyspark_pgrouse.lake import maintenance
from pyspark_pgrouse.lake.lake import Lake
from pyspark_pgrouse.lake.cursor import ExportCursor
lake_export.LEAST_ROWS = 10
advance = ExportCursor.advance
def advance_late(*arguments):
    time.sleep(0.1)
    return advance(*arguments)
ExportCursor.advance = advance_late
class Database:
    dsn = sys.argv[1]
lakes.exported(Database, sys.argv[2], partitions=2, batch_rows=200)
maintenance.optimize(Lake.open(sys.argv[2]))
"""
KILLS = 25


@contextmanager
def _started(database: Database, lake: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start an export; at the end it is killed."""
    root = Path(__file__).parents[3]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "daemon"), str(root / "pipeline")])}
    with subprocess.Popen([sys.executable, "-c", PROGRAM, database.dsn, lake], env=env) as process:
        try:
            yield process
        finally:
            process.kill()


def _moments(lake: str) -> list[Callable[[], bool]]:
    """Return the conditions before each kill: a table, files being written, commits."""
    root = Path(lake)

    def commits() -> int:
        return len(list((root / "_delta_log").glob("*.json")))

    return [
        lambda: commits() >= 1,
        lambda: any(root.glob("date=*/topic=*/*.parquet")),
        lambda: commits() >= 3,
        lambda: commits() >= 5,
    ]


@pytest.mark.timeout(900)
def test_every_row_is_exported_once_after_kills_at_any_moment(
    queue: Queue, database: Database, lake: str, eventually: Callable[..., Any]
) -> None:
    fill(queue, 800)

    for moment in _moments(lake):
        with _started(database, lake) as process:
            eventually(lambda moment=moment, process=process: moment() or process.poll() is not None, within_s=200)
        eventually(lambda: queue.value(LOCK_IS_FREE))
    exported(database, lake)

    assert ids(lake) == archive(queue)
    vacuum(Lake.open(lake), timedelta(0))
    assert len(data_files(lake)) == len(Lake.open(lake).files())


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_every_row_is_exported_once_while_random_kills_meet_a_growing_archive(
    queue: Queue, database: Database, lake: str, eventually: Callable[..., Any]
) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    killed_runs = 0
    fill(queue, 500)
    with _started(database, lake) as process:
        # As long as a run takes here: the kills are spread over all of it.
        began = time.monotonic()
        assert process.wait(300) == 0
        whole_s = time.monotonic() - began

    for _ in range(KILLS):
        fill(queue, 500)
        with _started(database, lake) as process, suppress(subprocess.TimeoutExpired):
            process.wait(chance.uniform(0.2, 1.2) * whole_s)
        killed_runs += process.returncode == -signal.SIGKILL
        eventually(lambda: queue.value(LOCK_IS_FREE))
    exported(database, lake)

    assert killed_runs > KILLS / 4, f"seed {seed}: the kills came after the end"
    assert ids(lake) == archive(queue), f"seed {seed}"
    optimize(Lake.open(lake))
    vacuum(Lake.open(lake), timedelta(0))
    assert ids(lake) == archive(queue), f"seed {seed}"
    # This many commits have checkpoints, which are Parquet, too.
    left = {file for file in data_files(lake) if not file.startswith("_delta_log/")}
    assert len(left) == len(Lake.open(lake).files()), f"seed {seed}: {left}"


# Two concurrent exporters


def test_the_second_of_two_concurrent_exporters_is_refused(queue: Queue, database: Database, lake: str) -> None:
    with connect(database.dsn) as conn, held(conn, "default"), pytest.raises(ExportConflict, match="another process"):
        exported(database, lake)

    assert exported(database, lake) == []


@pytest.mark.long
def test_an_exporter_that_lost_its_lock_while_writing_changes_nothing(
    queue: Queue, database: Database, lake: str
) -> None:
    """The lock belongs to the connection: behind a pooler, or when the network breaks, two may believe they hold it."""
    fill(queue, 100)

    def overtaken(work: Callable[[Any], Any], parts: Any) -> Any:
        with connect(database.dsn) as conn:
            list(Export.begin(conn, database.dsn, lake, ExportOptions(batch_rows=60)).batches(one_by_one, 2))
        return one_by_one(work, parts)

    with pytest.raises(ExportConflict, match="were committed by another process"):
        exported(database, lake, overtaken)

    assert ids(lake) == archive(queue)
    assert exported(database, lake) == []
    assert ids(lake) == archive(queue)


def test_one_that_was_given_up_while_it_wrote_says_so(queue: Queue, database: Database, lake: str) -> None:
    fill(queue, 100)

    def given_up(work: Callable[[Any], Any], parts: Any) -> Any:
        queue.call("delete_export", "default")
        return one_by_one(work, parts)

    with pytest.raises(ExportConflict, match="moved or given up by another process"):
        exported(database, lake, given_up)


# Lakes and databases that do not belong together


def test_a_directory_with_other_content_does_not_become_a_lake(
    queue: Queue, database: Database, tmp_path: Path
) -> None:
    (tmp_path / "thesis.doc").write_text("three years of work")

    with pytest.raises(ConfigError, match="is not empty and is no lake"):
        exported(database, str(tmp_path))

    assert [path.name for path in tmp_path.iterdir()] == ["thesis.doc"]
    assert position(queue) is None


def test_an_unwritable_directory_is_reported(queue: Queue, database: Database, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(ConfigError, match=r"the lake .*file/lake cannot be (read|written): Not a directory"):
        exported(database, str(tmp_path / "file" / "lake"))


def test_a_lake_of_another_queue_is_refused(queue: Queue, database: Database, lake: str) -> None:
    exported(database, lake)
    DeltaTable(lake).alter.set_table_properties({"pgrouse.queue": "1"}, raise_if_not_exists=False)

    with pytest.raises(ConfigError, match=r"holds the archive of another queue .*--forget default"):
        exported(database, lake)


def test_an_export_writes_to_one_lake(queue: Queue, database: Database, lake: str) -> None:
    exported(database, lake)

    with pytest.raises(ConfigError, match=r"export default writes to another lake, .*: use another --name"):
        exported(database, f"{lake}2")
    with pytest.raises(ConfigError, match="is written by export default: use --name default"):
        exported(database, lake, name="mine")

    assert not Path(f"{lake}2").exists()


@pytest.mark.long
def test_a_lake_that_lost_commits_is_not_continued(queue: Queue, database: Database, lake: str) -> None:
    fill(queue, 200)
    exported(database, lake)
    Path(lake, "_delta_log/00000000000000000002.json").unlink()

    with pytest.raises(ConfigError, match="lacks what export default had written"):
        exported(database, lake)


def test_a_role_that_may_not_read_payloads_gets_the_missing_right(own_database: Database, lake: str) -> None:
    admin = own_database.connect()
    admin.execute("CREATE ROLE export_analyst LOGIN PASSWORD 'pgrouse' IN ROLE messages_analyst")
    try:
        with (
            connect(own_database.server.dsn(own_database.name, "export_analyst")) as conn,
            pytest.raises(ConfigError, match="GRANT messages_operator"),
        ):
            Export.begin(conn, None, lake, ExportOptions())
    finally:
        admin.execute("DROP ROLE export_analyst")


# On Spark


def _run(database: Database, *arguments: str) -> Any:
    env = {"PGROUSE_DSN": database.dsn}
    return CliRunner().invoke(export, [*arguments, "--json"], obj=CliSession(), env=env, catch_exceptions=False)


NOTHING = Maintenance()


def test_rows_that_wait_for_a_transaction_are_counted_in_the_last_line(
    queue: Queue, other: Queue, database: Database, lake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(url: str = lake, *, as_json: bool = False, **wanted: Any) -> str:
        session = CliSession()
        session.as_json = as_json
        with connect(database.dsn) as conn:
            work = Export.begin(conn, database.dsn, url, ExportOptions(**wanted))
            ExportRunner(session, work, 1, one_by_one, NOTHING).run(None)
        return capsys.readouterr().out

    with other.conn.transaction():
        fill(other, 1)
        fill(queue, 5, first=100)
        held, summary = said(), json.loads(said(as_json=True))
        young = said(f"{lake}2", name="young", since=datetime(2030, 1, 1, tzinfo=UTC))

    assert held.startswith(f"wrote 0 rows in 0 files to {lake}")
    assert held.splitlines()[-1].startswith("5 rows wait for a later run: the watermark is ")
    assert "held for" in held
    assert summary["rows_waiting"] == 5
    assert "later run" not in young + said()


@pytest.mark.spark
def test_the_job_writes_on_executors_and_spark_reads_committed_files(
    queue: Queue, database: Database, lake: str, spark: SparkSession
) -> None:
    fill(queue, 250)

    output = json.loads(_run(database, lake, "--batch-rows", "100", "--partitions", "2").stdout)
    Path(lake, "date=2027-01-31/topic=x").mkdir(parents=True)
    Path(lake, "date=2027-01-31/topic=x/left-by-a-crash.parquet").write_bytes(b"not even Parquet")

    assert (output["batches"], output["rows"], output["position"]["id"]) == (3, 250, 250)
    frame = Lake.open(lake).read(spark)
    assert sorted(row.id for row in frame.select("id").collect()) == archive(queue) == ids(lake)
    assert {"date", "topic", "payload"} <= set(frame.columns)
    assert Lake.open(lake).read(spark, topics=["007"]).select("topic").distinct().collect() == [("007",)]
    since = datetime.now(UTC) - timedelta(hours=1)
    assert Lake.open(lake).read(spark, since=since).count() == len(
        rows(lake, where=f"archived_at >= '{since.isoformat()}'")
    )


def test_an_abandoned_export_continues_where_its_lake_ends(queue: Queue, database: Database, lake: str) -> None:
    fill(queue, 10, "t")
    exported(database, lake)

    assert json.loads(_run(database, "--forget", "default").stdout) == {"forgotten": "default"}

    assert position(queue) is None
    with pytest.raises(ConfigError, match="there is no export default"):
        _run(database, "--forget", "default")
    fill(queue, 10, "t")
    exported(database, lake)
    assert ids(lake) == archive(queue)


def test_a_missing_lake_option_is_reported(database: Database) -> None:
    assert "name the lake" in CliRunner().invoke(export, [], obj=CliSession()).output


def test_a_setting_of_spark_without_a_value_is_refused() -> None:
    ran = CliRunner().invoke(export, ["lake", "--conf", "spark.ui.enabled"], obj=CliSession())

    assert (ran.exit_code, "'spark.ui.enabled' is not KEY=VALUE" in ran.output) == (2, True)
