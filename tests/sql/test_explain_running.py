"""explain_running: a message that is locked."""

from __future__ import annotations

from psycopg.types.json import Jsonb

from tests.sql.queue import Queue


def test_it_shows_worker_duration_and_attempt(queue: Queue) -> None:
    queue.policy(max_attempts=3)
    message = queue.publish()
    queue.claim(worker="w1/0")
    queue.later("10 s")

    row = queue.row("SELECT * FROM messages.explain(%s)", [message])

    assert row.code == "running"
    assert row.reason == (
        "locked by w1/0 for 10s, attempt 1 of 3; the lock expires in 20s unless a heartbeat extends it"
    )
    assert (row.detail["worker"], row.detail["attempt"], row.detail["max_attempts"]) == ("w1/0", 1, 3)


def test_it_shows_the_progress_and_nothing_else_that_the_handler_wrote(queue: Queue) -> None:
    message = queue.publish()
    queue.claim()
    queue.conn.execute(
        "UPDATE messages.message SET progress = %s", [Jsonb({"done": 3, "total": 10, "unit": "rows", "secret": 1})]
    )

    row = queue.row("SELECT * FROM messages.explain(%s)", [message])

    assert row.reason.endswith("; progress 3 of 10 rows")
    assert row.detail["progress"] == {"done": 3, "total": 10, "unit": "rows"}


def test_an_invalid_progress_is_not_shown(queue: Queue) -> None:
    message = queue.publish()
    queue.claim()
    queue.conn.execute(
        "UPDATE messages.message SET progress = %s",
        [Jsonb({"done": {"secret": 1}, "total": "s3cret", "unit": "x" * 51})],
    )

    row = queue.row("SELECT * FROM messages.explain(%s)", [message])

    assert row.detail["progress"] is None
    assert row.reason.endswith("unless a heartbeat extends it")


def test_a_message_that_was_claimed_ahead_waits_for_a_slot(queue: Queue) -> None:
    first, second = queue.publish_many(2)
    queue.claim(worker="w1/0", start=1)

    assert queue.row("SELECT * FROM messages.explain(%s)", [first]).code == "running"
    row = queue.row("SELECT * FROM messages.explain(%s)", [second])
    assert row.code == "prefetched"
    assert row.reason.startswith("prefetched by w1/0 ")


def test_an_expired_lock_waits_for_the_tick_and_shows_when_the_last_one_ran(queue: Queue) -> None:
    message = queue.publish()
    queue.claim(worker="w1")
    queue.later("45 s")

    row = queue.row("SELECT * FROM messages.explain(%s)", [message])

    assert row.code == "lock_ran_out"
    assert row.reason.startswith("the lock of w1 expired 15s ago (attempt 1 of 1): the next tick ends that attempt")
    assert row.reason.endswith("never: start a daemon, or install the jobs of pg_cron")
    queue.rows("SELECT * FROM messages.tick('hand')")  # ends it
    message = queue.publish()
    queue.claim(worker="w1")
    queue.later("45 s")
    assert "ago" in queue.row("SELECT * FROM messages.explain(%s)", [message]).reason.rpartition("last one was")[2]


def test_a_worker_without_a_sign_of_life_is_named(queue: Queue) -> None:
    queue.call("register_worker", "w1", "h", 7, "1", ["t"], 10)
    message = queue.publish()
    queue.claim(worker="w1/0")
    assert [row.code for row in queue.rows("SELECT * FROM messages.explain(%s)", [message])] == ["running"]

    queue.conn.execute("UPDATE messages.worker SET seen_at = seen_at - interval '40 s'")

    rows = queue.rows("SELECT * FROM messages.explain(%s)", [message])
    assert [row.code for row in rows] == ["running", "worker_silent"]
    assert rows[1].detail["host"] == "h"
