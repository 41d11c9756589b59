"""The doctor's checks of sessions that hold locks and snapshots."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.server.postgres import Database
from tests.sql.examined import Examined, examine
from tests.sql.queue import Background, Queue

# messages.examine_holders: sessions that hold what others need.

pytestmark = pytest.mark.every_server


def test_without_holders_there_is_no_finding(queue: Queue) -> None:
    assert examine(queue, "holders").wrong == {}


def test_a_notification_queue_that_fills_up_is_found_also_without_the_right_to_read_it(
    queue: Queue, other: Queue, eventually: Callable[..., Any]
) -> None:
    other.conn.execute("SET application_name = 'sleepy'")
    other.conn.execute("LISTEN t")
    other.conn.execute("BEGIN")
    other.conn.execute("SELECT 1")
    queue.conn.execute("SELECT pg_notify('t', repeat('x', 7900) || n) FROM generate_series(1, 200) AS n")
    queue.later("1 minute")

    found = eventually(lambda: examine(queue, "holders", 0.00001))
    roomy = examine(queue, "holders")

    assert found.wrong == {"notify_queue": "warn"}
    assert "daemons poll" in found.of("notify_queue").what
    assert f"process {other.conn.info.backend_pid} (postgres, sleepy)" in found.of("notify_queue").what
    assert roomy.wrong == {}
    queue.conn.execute(found.of("notify_queue").fix.split(";")[0].encode())


def test_an_unused_replication_slot_is_found_and_the_fix_drops_it(queue: Queue) -> None:
    queue.conn.execute("SELECT pg_create_physical_replication_slot('left_behind', true)")

    found = examine(queue, "holders")
    queue.conn.execute(found.of("replication_slot").fix.removeprefix("start its reader, or: ").encode())

    assert found.wrong == {"replication_slot": "warn"}
    assert "left_behind" in found.of("replication_slot").what
    assert examine(queue, "holders").wrong == {}


def test_a_session_that_waits_for_a_table_of_the_queue_is_found_with_the_holder(
    queue: Queue, database: Database, background: Background
) -> None:
    reader, migrator = Queue(database.connect()), Queue(database.connect())
    with reader.conn.transaction():
        reader.rows("SELECT * FROM messages.schedule")
        waits = background.start_blocked(
            migrator, migrator.conn.execute, "BEGIN; LOCK TABLE messages.schedule; ROLLBACK"
        )
        queue.later("30 s")
        found = examine(queue, "holders")
    waits.result(timeout=60)

    assert found.wrong == {"table_lock": "fail"}
    assert f"process {migrator.conn.info.backend_pid} has waited" in found.of("table_lock").what
    assert f"messages.schedule, behind process {reader.conn.info.backend_pid}" in found.of("table_lock").what
    assert "pg_terminate_backend" in found.of("table_lock").fix


def test_an_open_session_that_locks_what_others_need_is_found(queue: Queue, other: Queue) -> None:
    queue.policy("t", max_depth=10)
    queue.publish("t")
    other.conn.execute("SET application_name = 'forgetful'")
    with other.conn.transaction():
        other.publish("t")
        at_once = examine(queue, "holders")
        queue.later("30 s")
        soon = examine(queue, "holders")
        queue.later("1 minute")
        late = examine(queue, "holders")

    assert (at_once.wrong, soon.wrong, late.wrong) == ({}, {"row_lock": "warn"}, {"row_lock": "fail"})
    pid = other.conn.info.backend_pid
    assert late.of("row_lock").what.startswith(
        f"process {pid} (postgres, forgetful, idle in transaction) has locked the counter of topic t: "
        "anyone who else publishes to it waits, for "
    )
    assert late.of("row_lock").fix == f"SELECT pg_terminate_backend({pid});"
    assert examine(queue, "holders").wrong == {}


# messages.examine_snapshots: sessions and slots that keep vacuum from removing dead rows.


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
        """Say that this standby needs a current snapshot, as it does every ten seconds.

        Fail if the server has ended the connection.
        """
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


# messages.snapshot_age: for how long a snapshot has kept vacuum from removing dead rows.


def test_the_age_of_a_held_snapshot_grows(own_database: Database) -> None:
    queue = Queue(own_database.connect())
    assert queue.call("snapshot_age") == 0

    holder = own_database.connect()
    holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    with holder.transaction():
        holder.execute("SELECT FROM messages.topic")
        first, second = queue.call("snapshot_age"), queue.call("snapshot_age")

    assert 0 < first < second
    assert queue.call("snapshot_age") == 0


@pytest.fixture
def owner_sees_no_sessions(own_database: Database) -> None:
    """Make the owner of the schema a role without any other rights."""
    own_database.connect().execute("CREATE ROLE test_blind; ALTER FUNCTION messages.snapshot_age OWNER TO test_blind")


def test_an_owner_that_cannot_see_other_sessions_gets_null(
    own_database: Database, owner_sees_no_sessions: None
) -> None:
    queue = Queue(own_database.connect())
    try:
        assert queue.call("snapshot_age") is None
    finally:
        queue.conn.execute("ALTER FUNCTION messages.snapshot_age OWNER TO messages_owner; DROP ROLE test_blind")
