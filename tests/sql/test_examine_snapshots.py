"""messages.examine_snapshots: sessions and slots that keep vacuum from removing dead rows."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.server.postgres import Database
from tests.sql.examined import Examined, examine
from tests.sql.queue import Queue

pytestmark = pytest.mark.every_server


def test_without_an_old_snapshot_there_is_no_finding(queue: Queue) -> None:
    assert examine(queue, "snapshots").wrong == {}


def test_a_session_with_an_old_snapshot_is_found_with_its_process_and_the_fix(queue: Queue, other: Queue) -> None:
    other.conn.execute("SET application_name = 'report'")
    other.conn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    other.conn.execute("SELECT count(*) FROM messages.topic")
    queue.later("10 minutes")
    soon = examine(queue, "snapshots")
    queue.later("2 hours")
    late = examine(queue, "snapshots")

    assert (soon.wrong, late.wrong) == ({"snapshot_held": "warn"}, {"snapshot_held": "fail"})
    assert f"process {other.conn.info.backend_pid} (postgres, report, idle in transaction)" in soon.text_of(
        "snapshot_held"
    )
    assert f"pg_terminate_backend({other.conn.info.backend_pid})" in soon.text_of("snapshot_held")
    other.conn.execute("ROLLBACK")
    assert examine(queue, "snapshots").wrong == {}


def standby(queue: Queue, dsn: str, slot: str = "") -> psycopg.pq.PGconn:
    """Return a walsender that received the feedback of a standby that needs a current snapshot."""
    conn = psycopg.pq.PGconn.connect(f"{dsn} replication=database application_name=mirror".encode())
    at = queue.value("SELECT pg_current_wal_lsn()::text")
    begun = conn.exec_(f"START_REPLICATION {slot} PHYSICAL {at}".encode())
    assert begun.status == psycopg.pq.ExecStatus.COPY_BOTH
    xid = queue.value("SELECT pg_current_xact_id()::text::bigint")
    conn.put_copy_data(struct.pack("!cqIIII", b"h", 0, xid, 0, 0, 0))
    conn.flush()
    return conn


def held(queue: Queue) -> Examined | None:
    """Return the finding about holders of unknown age, however young; None if there is none."""
    found = examine(queue, "snapshots", "5 minutes", -1)
    return found if found.wrong else None


def test_a_standby_that_holds_a_snapshot_is_found(
    queue: Queue, database: Database, eventually: Callable[..., Any]
) -> None:
    mirror = standby(queue, database.dsn)

    found = eventually(lambda: held(queue))

    assert "the standby mirror (hot_standby_feedback)" in found.text_of("snapshot_held")
    assert "hot_standby_feedback = off" in found.text_of("snapshot_held")
    mirror.finish()
    eventually(lambda: held(queue) is None)


def test_a_slot_that_holds_a_snapshot_for_a_missing_standby_is_found_and_the_fix_drops_it(
    queue: Queue, database: Database, eventually: Callable[..., Any]
) -> None:
    queue.conn.execute("SELECT pg_create_physical_replication_slot('mirror', true)")
    gone = standby(queue, database.dsn, "SLOT mirror")
    eventually(lambda: queue.value("SELECT xmin IS NOT NULL FROM pg_replication_slots"))
    gone.finish()
    eventually(lambda: queue.value("SELECT NOT active FROM pg_replication_slots"))

    found = examine(queue, "snapshots", "5 minutes", -1).of("snapshot_held")
    queue.conn.execute(found.fix.encode())

    assert found.what.startswith("the replication slot mirror has held a snapshot of ")
    assert held(queue) is None


def test_a_role_that_cannot_see_other_sessions_is_informed(queue: Queue) -> None:
    with queue.conn.transaction():
        queue.conn.execute("SET LOCAL ROLE messages_analyst")
        found = examine(queue, "snapshots")

    assert found.wrong == {"snapshot_held": "warn"}
    assert "messages_analyst may not see" in found.text_of("snapshot_held")
    assert "GRANT pg_read_all_stats TO messages_analyst" in found.text_of("snapshot_held")
