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


class Standby:
    """A connection that behaves like a standby of the server, with `hot_standby_feedback`.

    Args:
        queue: a connection to the server.
        dsn: where to connect.
        slot: the name of the replication slot to use; "" uses none.
    """

    def __init__(self, queue: Queue, dsn: str, slot: str = "") -> None:
        self._queue = queue
        self._conn = psycopg.pq.PGconn.connect(f"{dsn} replication=database application_name=mirror".encode())
        at = queue.value("SELECT pg_current_wal_lsn()::text")
        begun = self._conn.exec_(f"START_REPLICATION {slot and f'SLOT {slot}'} PHYSICAL {at}".encode())
        assert begun.status == psycopg.pq.ExecStatus.COPY_BOTH, self._conn.get_error_message()

    def need_snapshot(self) -> None:
        """Say that this standby needs a current snapshot, as it does every ten seconds; fail if the server has ended the connection."""
        xid = self._queue.value("SELECT pg_current_xact_id()::text::bigint")
        self._conn.put_copy_data(struct.pack("!cqIIII", b"h", 0, xid, 0, 0, 0))
        self._conn.flush()
        self._conn.consume_input()
        while self._conn.get_copy_data(1)[0] > 0:
            pass

    def finish(self) -> None:
        """End the connection."""
        self._conn.finish()


def held(queue: Queue) -> Examined | None:
    """Return the finding about holders of unknown age, however young; None if there is none."""
    found = examine(queue, "snapshots", "5 minutes", -1)
    return found if found.wrong else None


def test_a_standby_that_holds_a_snapshot_is_found(
    queue: Queue, database: Database, eventually: Callable[..., Any]
) -> None:
    mirror = Standby(queue, database.dsn)
    mirror.need_snapshot()

    found = eventually(lambda: held(queue))

    assert "the standby mirror (hot_standby_feedback)" in found.text_of("snapshot_held")
    assert "hot_standby_feedback = off" in found.text_of("snapshot_held")
    mirror.finish()
    eventually(lambda: held(queue) is None)


def test_a_slot_that_holds_a_snapshot_for_a_missing_standby_is_found_and_the_fix_drops_it(
    queue: Queue, database: Database, eventually: Callable[..., Any]
) -> None:
    queue.conn.execute("SELECT pg_create_physical_replication_slot('mirror', true)")
    gone = Standby(queue, database.dsn, "mirror")
    eventually(lambda: gone.need_snapshot() or queue.value("SELECT xmin IS NOT NULL FROM pg_replication_slots"))
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
