"""messages.explain_locked: a message that waits because an open transaction has locked it, its topic or its channel."""

from __future__ import annotations

from tests.sql.queue import Queue, Row


def locked(queue: Queue, message_id: int) -> list[Row]:
    return [row for row in queue.rows("SELECT * FROM messages.explain(%s)", [message_id]) if row.code == "locked"]


def test_an_open_publisher_that_replaces_the_message_is_named(queue: Queue, other: Queue) -> None:
    waiting = queue.publish("t", key="k")
    with other.conn.transaction(force_rollback=True):
        other.send(2, key="k", on_conflict="replace")
        at_once = locked(queue, waiting)
        queue.later("10 s")
        (row,) = locked(queue, waiting)

    pid = other.conn.info.backend_pid
    assert at_once == []
    assert row.reason.startswith(
        f"process {pid} (postgres, idle in transaction) has locked message {waiting}: claims pass it over, for "
    )
    assert row.reason.endswith(f"end it by: SELECT pg_terminate_backend({pid});")
    assert (row.detail["kind"], row.detail["pid"]) == ("message", pid)
    assert locked(queue, waiting) == []


def test_an_open_claim_of_its_topic_is_named(queue: Queue, other: Queue) -> None:
    queue.policy("t", max_concurrency=100)
    queue.publish("t")
    queue.claim("t", limit=1)
    queue.publish("t")
    waiting = queue.publish("t")
    beside = queue.publish("beside")
    with other.conn.transaction(force_rollback=True):
        other.claim("t", limit=1)
        queue.later("10 s")
        found = [row.detail["kind"] for row in locked(queue, waiting)]
        assert locked(queue, beside) == []

    assert found == ["topic"]


def test_an_open_claim_of_its_channel_is_named(queue: Queue, other: Queue) -> None:
    queue.policy("t", channel_concurrency=100)
    queue.publish("t", channel="c")
    queue.claim("t")
    queue.publish("t", channel="c")
    waiting = queue.publish("t", channel="c")
    with other.conn.transaction(force_rollback=True):
        other.claim("t", limit=1)
        elsewhere = queue.publish("t", channel="d")
        queue.later("10 s")
        found = [row.detail["kind"] for row in locked(queue, waiting)]

        assert "channel" not in {row.detail["kind"] for row in locked(queue, elsewhere)}
    assert "channel" in found
