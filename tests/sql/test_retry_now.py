"""messages.retry_now: makes delayed messages ready at once."""

from __future__ import annotations

from collections.abc import Callable

from tests.sql.queue import Listener, Queue


def test_a_delayed_message_can_be_claimed_at_once_and_wakes_a_sleeper(
    queue: Queue, listen: Callable[..., Listener]
) -> None:
    published = queue.publish(wait="1 hour")
    queue.arm()
    listener = listen("new_message")

    assert queue.call("retry_now", [published]) == [published]

    assert listener.received() == ["t"]
    assert queue.claim_one().id == published


def test_a_failed_message_need_not_wait_for_its_next_attempt(queue: Queue) -> None:
    queue.policy(max_attempts=5)
    published = queue.publish()
    queue.settle("retry", queue.claim(), ["boom"], ["1 hour"])
    assert queue.claim() == []

    queue.call("retry_now", [published])

    assert queue.claim_one().attempt == 2


def test_the_first_message_of_an_ordered_channel_keeps_its_position_and_the_channel_continues(queue: Queue) -> None:
    queue.policy(max_attempts=5, ordered=True)
    first, second = queue.publish(channel="c"), queue.publish(channel="c")
    queue.settle("retry", queue.claim(limit=1), ["boom"], ["1 hour"])
    assert queue.claim() == []

    assert queue.call("retry_now", [first, second]) == [first]

    assert queue.claim_one().id == first


def test_running_ready_and_ended_messages_are_left_alone(queue: Queue) -> None:
    running, ready = queue.publish("a"), queue.publish("b")
    queue.claim("a")

    assert queue.call("retry_now", [running, ready, 4711]) == []
    assert queue.rows("SELECT * FROM messages.audit") == []


def test_an_audit_entry_is_written(queue: Queue) -> None:
    waiting = queue.publish_many(2, wait="1 hour")

    queue.call("retry_now", waiting)

    assert queue.row("SELECT action, topic, detail ->> 'count' AS count FROM messages.audit") == ("retry_now", "t", "2")


def test_an_open_transaction_that_waits_for_the_message_does_not_block_it(queue: Queue, other: Queue) -> None:
    published = queue.publish(wait="1 hour")

    with other.conn.transaction():
        other.rows("SELECT FROM messages.wait_for(%s)", [published])
        queue.conn.execute("SET lock_timeout = '1s'")
        assert queue.call("retry_now", [published]) == [published]
    queue.conn.execute("RESET lock_timeout")
