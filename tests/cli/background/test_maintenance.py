"""`pgrouse maintenance`."""

from __future__ import annotations

import psycopg

from tests.cli.shell import Shell
from tests.server.postgres import Database
from tests.sql.queue import Queue


def test_maintenance_runs_all_functions_and_prints_their_results(pgrouse: Shell, queue: Queue) -> None:
    message_id = queue.publish()
    queue.claim(lock_duration="1 hour")
    queue.conn.execute("UPDATE messages.message SET lock_expires_at = now() - interval '1 s'")

    rows = pgrouse("maintenance", "run", "--json").objects

    assert {row["task"]: row["count"] for row in rows}["expire_locks"] == 1
    assert queue.archived(message_id).result == "lock_expired"


def test_warnings_of_the_server_are_printed_without_the_payload(pgrouse: Shell, queue: Queue) -> None:
    message_id = queue.publish(payload={"note": "secret"})
    queue.claim()
    queue.conn.execute("UPDATE messages.message SET lock_expires_at = now() - interval '1 s'")

    ended = pgrouse("maintenance", "run")

    assert ended.code == 0
    assert ended.err == f"the server warns: dead message {message_id} of topic t: lock_expired\n"
    assert ended.out.splitlines()[0].split() == ["TASK", "COUNT"]


def test_maintenance_does_nothing_while_another_session_runs_it(pgrouse: Shell, database: Database) -> None:
    with psycopg.connect(database.dsn) as other:
        other.execute("SELECT messages.lock_mutex('tick')")

        ended = pgrouse("maintenance", "run")

    assert (ended.code, ended.out) == (0, "")
    assert ended.err == "another process runs them at the moment: nothing to do\n"


def test_a_task_that_fails_is_a_problem_and_the_others_run(pgrouse: Shell, queue: Queue) -> None:
    queue.conn.execute("ALTER TABLE messages.low_water_mark RENAME TO elsewhere")

    ended = pgrouse("maintenance", "run")

    assert ended.code == 1
    assert "the server warns: tick: raise_low_water failed" in ended.err
    assert [line.split()[1] == "failed" for line in ended.out.splitlines()[1:]].count(True) == 1


def test_one_task_can_be_run_alone(pgrouse: Shell, queue: Queue) -> None:
    message_id = queue.publish()
    queue.claim(lock_duration="1 hour")
    queue.conn.execute("UPDATE messages.message SET lock_expires_at = now() - interval '1 s'")

    rows = pgrouse("maintenance", "run", "--task", "expire_locks", "--json").objects

    assert rows == [{"task": "expire_locks", "count": 1}]
    assert queue.archived(message_id).result == "lock_expired"
