"""messages.examine_holders: sessions that hold what others need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.server.postgres import Database
from tests.sql.examined import examine
from tests.sql.queue import Background, Queue

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
    queue: Queue, database: Database, background: Background, eventually: Callable[..., Any]
) -> None:
    reader, migrator = Queue(database.connect()), Queue(database.connect())
    with reader.conn.transaction():
        reader.rows("SELECT * FROM messages.schedule")
        waits = background.start(migrator.conn.execute, "BEGIN; LOCK TABLE messages.schedule; ROLLBACK")
        eventually(lambda: background.is_blocked(migrator))
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
        f"process {pid} (postgres, forgetful, idle in transaction) has locked the counter of topic t: anyone who else publishes to it waits, for "
    )
    assert late.of("row_lock").fix == f"SELECT pg_terminate_backend({pid});"
    assert examine(queue, "holders").wrong == {}
