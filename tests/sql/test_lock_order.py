"""Every function that changes several messages locks their rows in the order of their ids.

Two sessions cannot deadlock.
"""

from __future__ import annotations

import pytest

from tests.sql.queue import Background, Queue

pytestmark = pytest.mark.every_server

SETTLES = {
    "complete": [],
    "fail": [["boom"] * 2],
    "reject": [["boom"] * 2],
    "retry": [["boom"] * 2],
    "defer": [["1 s"] * 2],
    "release": [],
}


@pytest.mark.parametrize("settle", list(SETTLES))
def test_a_settle_in_the_order_of_the_claim_and_a_cancel_never_deadlock(
    queue: Queue, other: Queue, background: Background, settle: str
) -> None:
    queue.policy(max_attempts=5)
    later, sooner = queue.publish(wait="-1 s"), queue.publish(wait="-2 s")
    claimed = queue.claim()
    assert [c.id for c in claimed] == [sooner, later]

    with other.conn.transaction():
        other.rows("SELECT FROM messages.message WHERE id = %s FOR UPDATE", [later])
        settling = background.start_blocked(queue, queue.settle, settle, claimed, *SETTLES[settle])
        # If the settle began with the message that was available sooner, this would be a deadlock.
        other.rows("SELECT FROM messages.message WHERE id = %s FOR UPDATE", [sooner])

    assert settling.result(timeout=60) == []


@pytest.mark.parametrize("function", ["cancel", "skip", "retry_now"])
def test_an_operation_on_messages_in_any_order_and_another_in_that_of_their_ids_never_deadlock(
    queue: Queue, other: Queue, background: Background, function: str
) -> None:
    first, second = queue.publish_many(2, wait="1 hour")

    with other.conn.transaction():
        other.rows("SELECT FROM messages.message WHERE id = %s FOR UPDATE", [first])
        operating = background.start_blocked(queue, queue.call, function, [second, first])
        other.rows("SELECT FROM messages.message WHERE id = %s FOR UPDATE", [second])

    assert sorted(operating.result(timeout=60)) == [first, second]


def test_copies_for_one_subscriber_take_keys_in_one_order_whatever_order_their_originals_have(
    queue: Queue, other: Queue, background: Background
) -> None:
    queue.conn.execute("INSERT INTO messages.subscription (topic, subscriber) VALUES ('t', 's')")
    publish = (
        "INSERT INTO messages.message (topic, key, payload) SELECT 't', k, '1' FROM unnest(%s::text[]) AS k "
        "RETURNING key"
    )

    with other.conn.transaction():
        other.publish("s", key="a")
        publishing = background.start_blocked(queue, queue.rows, publish, [["b", "a"]])
        # If the copies were made in the order of their originals, this would be a deadlock.
        other.publish("s", key="b")
        other.conn.execute("DELETE FROM messages.message WHERE topic = 's'")

    assert len(publishing.result(timeout=60)) == 2
    assert queue.rows("SELECT key FROM messages.message WHERE topic = 's' ORDER BY id") == [("b",), ("a",)]
