"""messages.add_dependencies: what is kept beside a message that waits for others. What becomes of it: test_chains.py."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_the_wishes_of_its_publisher_and_its_edges_are_kept(queue: Queue) -> None:
    first, second = queue.publish_many(2)

    last = queue.send(after=[second, first], after_failed="run", delay="1 hour", ttl="2 hours").id

    blocked = queue.row("SELECT * FROM messages.blocked_message")
    assert (blocked.id, blocked.after_failed, blocked.width) == (last, "run", 2)
    assert (str(blocked.delay), str(blocked.ttl)) == ("1:00:00", "2:00:00")
    edges = queue.rows("SELECT successor_id, predecessor_id, failed_result FROM messages.dependency ORDER BY 2")
    assert [tuple(edge) for edge in edges] == [(last, first, None), (last, second, None)]


def test_a_message_without_predecessors_is_not_parked(queue: Queue) -> None:
    queue.send(after=[])
    queue.send()

    assert queue.value("SELECT count(*) FROM messages.blocked_message") == 0
    assert len(queue.claim()) == 2


def test_one_that_is_undone_leaves_nothing(queue: Queue) -> None:
    first = queue.publish()

    queue.conn.execute("BEGIN")
    queue.send(after=[first])
    queue.conn.execute("ROLLBACK")

    assert queue.value("SELECT count(*) FROM messages.dependency") == 0
