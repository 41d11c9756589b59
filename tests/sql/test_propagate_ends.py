"""messages.propagate_ends: successors learn how their predecessors ended, a bounded number at once. The effects: test_chains.py."""

from __future__ import annotations

from tests.sql.queue import Queue


def ended(queue: Queue, message_id: int, result: str = "success") -> None:
    """Record an end that its transaction has not propagated."""
    queue.conn.execute("SET session_replication_role = replica")
    queue.conn.execute("INSERT INTO messages.end_event VALUES (%s, %s)", [message_id, result])
    queue.conn.execute("RESET session_replication_role")


def waiting(queue: Queue) -> int:
    count: int = queue.value("SELECT count(*) FROM messages.blocked_message")
    return count


def test_an_end_is_deleted_once_all_its_successors_have_learnt_of_it(queue: Queue) -> None:
    first = queue.publish()
    for _ in range(5):
        queue.send(after=[first])
    ended(queue, first)

    did = [queue.call("propagate_ends", [first], False, 2) for _ in range(3)]
    left = queue.value("SELECT count(*) FROM messages.end_event")

    assert (did, waiting(queue), left) == ([2, 2, 1], 0, 0)


def test_locked_successors_are_left_and_so_is_the_end(queue: Queue, other: Queue) -> None:
    first = queue.publish()
    held, free = queue.send(after=[first]).id, queue.send(after=[first]).id
    ended(queue, first)

    with other.conn.transaction():
        other.rows("SELECT FROM messages.blocked_message WHERE id = %s FOR UPDATE", [held])
        did = queue.call("propagate_ends", [first], False)
    again = queue.call("propagate_ends", [first], False)

    assert (did, again, waiting(queue)) == (1, 1, 0)
    assert free in queue.ids()


def test_a_bad_end_is_stored_in_the_dependency_of_a_successor_that_holds(queue: Queue) -> None:
    first = queue.publish()
    queue.send(after=[first])
    ended(queue, first, "rejected")

    queue.call("propagate_ends", [first], False)

    assert queue.value("SELECT failed_result FROM messages.dependency") == "rejected"
    assert queue.value("SELECT count(*) FROM messages.end_event") == 0
