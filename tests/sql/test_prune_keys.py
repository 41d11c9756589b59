"""messages.prune_keys: deletes keys that no message holds any more."""

from __future__ import annotations

from tests.sql.queue import Queue


def held(queue: Queue) -> list[str]:
    return [row.key for row in queue.rows("SELECT key FROM messages.held_key ORDER BY key")]


def test_expired_keys_are_deleted_and_the_others_stay(queue: Queue) -> None:
    queue.conn.execute(
        "INSERT INTO messages.held_key VALUES ('t', 'over', 1, now() - interval '1 s'), ('t', 'held', 2, now() + interval '1 hour')"
    )

    assert queue.call("prune_keys", 1.0) == 1
    assert held(queue) == ["held"]


def test_keys_of_messages_that_were_deleted_by_hand_are_deleted_and_those_of_live_messages_stay(queue: Queue) -> None:
    queue.policy("t", key_ttl="1 hour")
    deleted, waiting, running = (queue.publish(key=key) for key in ("deleted", "waiting", "running"))
    queue.conn.execute("DELETE FROM messages.message WHERE id = %s", [deleted])
    queue.claim_one()

    assert queue.call("prune_keys", 1.0) == 1
    assert held(queue) == ["running", "waiting"]
    assert queue.ids() == [waiting, running]


def test_it_is_bounded(queue: Queue) -> None:
    queue.conn.execute(
        "INSERT INTO messages.held_key SELECT 't', 'k' || n, n, now() - interval '1 s' FROM generate_series(1, 30) AS n"
    )

    assert [queue.call("prune_keys", 1.0, 20) for _ in range(3)] == [20, 10, 0]


def test_every_tick_calls_it(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.held_key VALUES ('t', 'over', 1, now() - interval '1 s')")

    queue.rows("SELECT * FROM messages.tick()")

    assert held(queue) == []


def test_a_key_that_another_session_is_taking_is_left(queue: Queue, other: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.held_key VALUES ('t', 'over', 1, now() - interval '1 s')")

    with other.conn.transaction():
        other.conn.execute("UPDATE messages.held_key SET message_id = 2, free_at = NULL")
        swept = queue.call("prune_keys", 1.0)

    assert (swept, held(queue)) == (0, ["over"])
