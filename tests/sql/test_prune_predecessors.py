"""messages.prune_predecessors: lists of predecessors are deleted once no handler will ask for them."""

from __future__ import annotations

from tests.sql.queue import Queue


def end_after(queue: Queue, count: int, settle: str) -> list[int]:
    """Publish so many messages after another one, end them, and return their ids."""
    before = queue.publish("first")
    queue.settle("complete", queue.claim("first"))
    published = [queue.send(after=[before]).id for _ in range(count)]
    # The flag is lowered while no one waits: then no end looks for lists.
    queue.conn.execute("SELECT setval('messages.awaited_flag', 1)")
    queue.settle(settle, queue.claim(), [None if settle == "complete" else "boom"] * count)
    return published


def left(queue: Queue) -> list[int]:
    return [row.message_id for row in queue.rows("SELECT message_id FROM messages.predecessor_list ORDER BY 1")]


def test_those_of_successes_are_deleted_and_those_of_dead_messages_stay(queue: Queue) -> None:
    done, dead, gone = (end_after(queue, 1, settle)[0] for settle in ("complete", "fail", "fail"))
    queue.conn.execute("DELETE FROM messages.message_archive WHERE id = %s", [gone])

    while queue.call("prune_predecessors") == 0:
        pass

    assert (left(queue), done) == ([dead], done)


def test_it_checks_a_bounded_number_and_starts_again_at_the_end(queue: Queue) -> None:
    end_after(queue, 5, "complete")
    queue.conn.execute("SELECT setval('messages.predecessor_cursor', 0)")

    did = [queue.call("prune_predecessors", 2) for _ in range(4)]

    assert (did, left(queue)) == ([2, 2, 1, 0], [])


def test_those_of_live_messages_stay(queue: Queue) -> None:
    before = queue.publish("first")
    published = queue.send(after=[before]).id

    queue.call("prune")
    queue.call("prune")

    assert left(queue) == [published]
