"""messages.expire_messages: ends messages whose TTL is over, even if no worker claims."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue


def test_expired_messages_end_and_the_others_stay(queue: Queue) -> None:
    gone = [queue.publish(expires_at="2026-01-01"), queue.publish("u", channel="c", expires_at="2026-01-01")]
    stay = [queue.publish(), queue.publish(expires_at="2900-01-01")]

    assert queue.call("expire_messages") == 2

    assert [queue.archived(each).result for each in gone] == ["expired", "expired"]
    assert queue.ids() == stay
    assert queue.call("expire_messages") == 0


def test_a_message_expires_at_its_exact_time(queue: Queue) -> None:
    queue.later("0")
    queue.publish(expires_at=queue.value("SELECT messages.now() + interval '1 minute'"))

    queue.later("59.999999 s")
    assert queue.call("expire_messages") == 0

    queue.later("0.000001 s")
    assert queue.call("expire_messages") == 1


def test_a_locked_message_may_still_succeed(queue: Queue) -> None:
    queue.later("0")
    published = queue.publish(expires_at=queue.value("SELECT messages.now() + interval '1 s'"))
    claimed = queue.claim()

    queue.later("1 hour")

    assert queue.call("expire_messages") == 0
    assert queue.settle("complete", claimed) == []
    assert queue.archived(published).result == "success"


@pytest.mark.parametrize("function", ["retry", "release"])
def test_a_message_that_returns_after_its_ttl_ends_then(queue: Queue, function: str) -> None:
    queue.later("0")
    published = queue.publish(expires_at=queue.value("SELECT messages.now() + interval '1 s'"), max_attempts=9)
    claimed = queue.claim()
    queue.later("2 s")

    queue.settle(function, claimed, *([["boom"]] if function == "retry" else []))

    assert queue.call("expire_messages") == 1
    assert queue.archived(published).result == "expired"


def test_a_delayed_message_may_expire_before_it_is_due(queue: Queue) -> None:
    queue.publish(wait="1 hour", expires_at="2026-01-01")

    assert queue.call("expire_messages") == 1


def test_each_call_is_bounded_and_begins_with_the_longest_expired(queue: Queue) -> None:
    late, early = queue.publish(expires_at="2026-01-02"), queue.publish(expires_at="2026-01-01")

    assert queue.call("expire_messages", 1) == 1

    assert (queue.archived(early) is not None, queue.ids()) == (True, [late])


def test_locked_rows_are_not_waited_for(queue: Queue, other: Queue) -> None:
    first, second = (queue.publish(expires_at="2026-01-01") for _ in range(2))
    other.conn.execute("SET lock_timeout = '1s'")
    with queue.conn.transaction():
        queue.row("SELECT FROM messages.message WHERE id = %s FOR UPDATE", [first])

        assert other.call("expire_messages") == 1

    assert queue.ids() == [first]
    assert queue.archived(second).result == "expired"


def test_it_reads_only_messages_that_expire(own_queue: Queue) -> None:
    own_queue.publish_many(20_000)
    own_queue.publish_many(20_000, expires_at="2900-01-01")

    assert own_queue.buffers("SELECT messages.expire_messages()") < 40
