"""A queue that is dumped while messages are published and processed continues in another database."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgrouse import migrate, publish, use_schema
from pgrouse.database.install import schema
from tests.daemon.process import Daemon, Fleet
from tests.docs.page import Page
from tests.server.postgres import Database, Postgres
from tests.sql.queue import Queue

PAGE = Page("docs/operating/backup-and-restore.md").section("What to run after a restore")
AFTER, RAISE_IDS = (block.text for block in PAGE.blocks)
EVERYWHERE = "SELECT id FROM messages.message UNION ALL SELECT id FROM messages.message_archive ORDER BY id"
AHEAD = "9000000000000000000"


def tool(name: str) -> str:
    """Return the newest of PostgreSQL's tools with this name."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    program = str(found[-1]) if found else shutil.which(name)
    if program is None:
        pytest.skip(f"{name} is not installed: sudo apt-get install postgresql-client")
    return program


@pytest.fixture
def restored(server: Postgres) -> Iterator[Database]:
    """An empty database to restore into."""
    with server.new_database(template="template0") as database:
        yield database


def copy(source: Database, target: Database, file: Path, *options_of_dump: str) -> None:
    subprocess.run([tool("pg_dump"), *options_of_dump, "--format=custom", f"--file={file}", source.dsn], check=True)
    options = ["--exit-on-error", "--single-transaction"]
    subprocess.run([tool("pg_restore"), *options, f"--dbname={target.dsn}", file], check=True)


def ids(conn: psycopg.Connection[Any]) -> list[int]:
    return [found for (found,) in conn.execute(EVERYWHERE)]


@pytest.mark.long
def test_a_queue_that_was_dumped_during_work_continues_where_it_is_restored(
    queue: Queue,
    database: Database,
    restored: Database,
    fleet: Fleet,
    start: Callable[..., Daemon],
    eventually: Callable[..., Any],
    tmp_path: Path,
) -> None:
    queue.value("SELECT setval('messages.message_id_seq', 1000)")
    # Messages that are locked in the dump are ready again when their locks expire.
    queue.conn.execute(
        "INSERT INTO messages.topic (topic, max_attempts, lock_duration) VALUES ('job', 5, '2 s'), ('lost', 5, '2 s')"
    )
    in_flight = queue.publish("lost")
    queue.claim("lost", worker="gone")
    delayed = queue.publish("job", wait="1 h")
    daemon = start({"job": "work:echo"})
    stop = threading.Event()
    publisher = threading.Thread(target=publish_until, args=(database, stop))
    publisher.start()
    try:
        eventually(lambda: len(ids(queue.conn)) > 100)
        copy(database, restored, tmp_path / "dump")
    finally:
        stop.set()
        publisher.join()
    daemon.stop()

    conn = restored.connect()
    here = ids(conn)
    assert len(here) > 100
    assert len(set(here)) == len(here)
    assert set(here) <= set(ids(queue.conn))
    assert {in_flight, delayed} <= set(here)
    schema.check(conn)
    assert schema.migrate(conn, dry_run=True) == []
    conn.execute(AFTER.encode())
    # Messages in flight are retried, and later claims are fenced.
    conn.execute("UPDATE messages.topic SET lock_duration = '1 hour'")

    fleet.start(conn, {"job": "work:echo", "lost": "work:echo"}, dsn=restored.dsn)
    new = Queue(conn).publish("job")

    assert new > max(here)
    eventually(lambda: conn.execute("SELECT id FROM messages.message").fetchall() == [(delayed,)], within_s=60)
    results = dict(conn.execute("SELECT id, result FROM messages.message_archive").fetchall())
    assert sorted([*results, delayed]) == [*here, new]
    assert set(results.values()) == {"success"}
    assert conn.execute("SELECT attempts FROM messages.message_archive WHERE id = %s", [in_flight]).fetchone() == (2,)


@pytest.mark.long
def test_one_queue_of_a_database_is_dumped_and_restored_next_to_another(
    database: Database, restored: Database, tmp_path: Path
) -> None:
    name, pattern = 'Order "q" 100', '"Order ""q"" 100"'
    migrate(database.dsn, schema=name)
    migrate(restored.dsn)
    with use_schema(name), database.connect() as conn:
        there = [publish(conn, "t", nth) for nth in range(3)]

    copy(database, restored, tmp_path / "dump", f"--schema={pattern}")

    with use_schema(name), restored.connect() as conn:
        schema.check(conn)
        assert schema.migrate(conn) == []
        conn.execute(AFTER.encode())
        assert ids(conn) == there
        claimed = conn.execute("SELECT id, claim_id FROM messages.claim('w', ARRAY['t'], 3)").fetchall()
        conn.execute("SELECT messages.complete(%s, %s)", [list(each) for each in zip(*claimed, strict=True)])
        assert conn.execute("SELECT id FROM messages.message_archive ORDER BY id").fetchall() == [(n,) for n in there]
    assert ids(restored.connect()) == []


def publish_until(database: Database, stop: threading.Event) -> None:
    with psycopg.connect(database.dsn, autocommit=True) as conn:
        while not stop.wait(0.001):
            # The backlog must be processed in the end.
            conn.execute(
                "INSERT INTO messages.message (topic, payload) SELECT 'job', '1' WHERE (SELECT count(*) "
                "FROM messages.message) < 200"
            )


def test_transaction_counters_are_corrected_after_a_restore_into_another_cluster(
    queue: Queue, database: Database
) -> None:
    queue.publish_many(2, "t")
    first, _ = queue.claim("t")
    queue.rows("SELECT messages.reject(ARRAY[%s]::bigint[], ARRAY[%s], ARRAY['no'])", [first.id, first.claim_id])
    for statement in (
        "UPDATE messages.message_archive SET archive_xid = %s",
        "UPDATE messages.alert SET xid = %s",
        "UPDATE messages.low_water_mark SET xid = %s",
    ):
        queue.conn.execute(statement.encode(), [AHEAD])

    queue.conn.execute(AFTER.encode())

    now = "pg_current_xact_id()"
    assert queue.value(f"SELECT bool_and(archive_xid < {now}) FROM messages.message_archive")
    assert queue.value(f"SELECT bool_and(xid < {now}) FROM messages.alert")
    assert queue.value(f"SELECT xid < {now} FROM messages.low_water_mark")
    queue.call("raise_low_water")
    queue.call("raise_low_water")
    assert queue.value("SELECT safe_at > 'epoch' OR at > 'epoch' FROM messages.low_water_mark")


def test_ids_can_be_raised_above_lost_ones(queue: Queue) -> None:
    known = queue.publish("t")

    queue.conn.execute(RAISE_IDS.encode())

    assert queue.publish("t") == known + 1_000_001
