"""messages.touch_http_holders: a worker that extends a lock is alive, even if it does not claim."""

from __future__ import annotations

from tests.sql.queue import Queue


def seconds_unseen(queue: Queue, name: str) -> float:
    query = "SELECT extract(epoch FROM clock_timestamp() - seen_at)::float8 FROM messages.worker WHERE name = %s"
    return float(queue.value(query, [name]))


def test_only_the_holders_over_http_are_updated(queue: Queue) -> None:
    for name in ("http:a/1", "http:a/two"):
        queue.call("touch_http_worker", name, "h", ["t"], 1)
    queue.call("register_worker", "daemon", "host", 42, "1.0", ["t"], 10)
    queue.publish_many(2)
    held = [queue.claim(worker=name, limit=1)[0] for name in ("http:a/1", "daemon")]
    queue.conn.execute("UPDATE messages.worker SET seen_at = clock_timestamp() - interval '60 s'")

    queue.call("touch_http_holders", [each.id for each in held])

    assert seconds_unseen(queue, "http:a/1") < 30
    assert seconds_unseen(queue, "http:a/two") > 30
    assert seconds_unseen(queue, "daemon") > 30


def test_a_locked_row_is_not_waited_for(queue: Queue, other: Queue) -> None:
    queue.call("touch_http_worker", "http:a/1", "h", ["t"], 1)
    queue.publish()
    (held,) = queue.claim(worker="http:a/1")
    queue.conn.execute("UPDATE messages.worker SET seen_at = clock_timestamp() - interval '60 s'")
    other.conn.execute("SET lock_timeout = '2s'")

    with queue.conn.transaction():
        queue.call("drain_worker", "http:a/1")
        other.call("touch_http_holders", [held.id])

    assert seconds_unseen(queue, "http:a/1") > 30
