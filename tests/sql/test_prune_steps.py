"""messages.prune_steps: steps are deleted once their message is neither live nor archived."""

from __future__ import annotations

from tests.sql.queue import Queue


def die_with_steps(queue: Queue, count: int = 1) -> list[int]:
    queue.publish_many(count)
    claimed = queue.claim()
    for each in claimed:
        queue.value("SELECT messages.save_step(%s, %s, 's', '1')", [each.id, each.claim_id])
    queue.settle("fail", claimed, ["boom"] * count)
    return [c.id for c in claimed]


def left(queue: Queue) -> list[int]:
    return [row.message_id for row in queue.rows("SELECT message_id FROM messages.step ORDER BY 1")]


def test_steps_of_dead_messages_stay_while_their_archive_row_does(queue: Queue) -> None:
    gone, stays = die_with_steps(queue, 2)
    queue.conn.execute("DELETE FROM messages.message_archive WHERE id = %s", [gone])

    while queue.call("prune_steps") == 0:
        pass

    assert left(queue) == [stays]


def test_it_checks_a_bounded_number_and_starts_again_at_the_end(queue: Queue) -> None:
    died = die_with_steps(queue, 5)
    queue.conn.execute("DELETE FROM messages.message_archive")
    queue.conn.execute("SELECT setval('messages.step_cursor', 0)")

    did = [queue.call("prune_steps", 2) for _ in range(4)]

    assert (did, left(queue)) == ([2, 2, 1, 0], [])
    assert died


def test_steps_of_live_messages_stay(queue: Queue) -> None:
    queue.publish()
    claimed = queue.claim_one()
    queue.value("SELECT messages.save_step(%s, %s, 's', '1')", [claimed.id, claimed.claim_id])

    queue.call("prune")
    queue.call("prune")

    assert left(queue) == [claimed.id]
