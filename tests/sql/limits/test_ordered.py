"""messages.hold_ordered_channels and is_in_ordered_channel.

In an ordered topic a channel waits for its first message.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.sql.queue import Queue


@pytest.fixture(autouse=True)
def ordered(queue: Queue) -> None:
    """Make the channels of topic t ordered, with a minute between attempts."""
    queue.policy(ordered=True, max_attempts=5, backoff={"kind": "constant", "base": "1 minute"})


def ids(claimed: list[Any]) -> list[int]:
    return [c.id for c in claimed]


def test_one_message_of_a_channel_is_claimed_and_the_next_only_after_it_has_ended(queue: Queue) -> None:
    first, second = queue.publish_many(2, channel="c")

    claimed = queue.claim()
    assert ids(claimed) == [first]
    assert queue.claim() == []

    queue.settle("complete", claimed)
    assert ids(queue.claim()) == [second]


@pytest.mark.parametrize("settle", [("retry", ["boom"]), ("defer", ["1 minute"])])
def test_while_the_first_message_backs_off_or_is_deferred_its_channel_waits_and_then_continues_with_it(
    queue: Queue, settle: tuple[str, list[str]]
) -> None:
    first, second = queue.publish_many(2, channel="c")
    queue.settle(settle[0], queue.claim(), settle[1])

    # A slow machine takes seconds for these statements.
    queue.later("30 s")
    assert queue.claim() == []
    queue.later("40 s")
    claimed = queue.claim()
    assert ids(claimed) == [first]
    queue.settle("complete", claimed)
    assert ids(queue.claim()) == [second]


def test_other_channels_and_messages_without_one_do_not_wait(queue: Queue) -> None:
    queue.publish_many(2, channel="c")
    queue.settle("retry", queue.claim(), ["boom"])
    free = [queue.publish(channel="d"), queue.publish()]

    assert sorted(ids(queue.claim())) == free


def test_a_released_message_keeps_its_position_and_holds_nothing(queue: Queue) -> None:
    first, _ = queue.publish_many(2, channel="c")

    queue.settle("release", queue.claim())

    assert ids(queue.claim()) == [first]


@pytest.mark.parametrize("end", ["cancel", "skip"])
def test_the_hold_ends_with_its_message(queue: Queue, end: str) -> None:
    first, second = queue.publish_many(2, channel="c")
    queue.settle("retry", queue.claim(), ["boom"])

    queue.call(end, [first])

    assert ids(queue.claim()) == [second]


def test_an_expired_lock_holds_the_channel_as_every_failed_attempt_does(queue: Queue) -> None:
    first, _ = queue.publish_many(2, channel="c")
    queue.claim(lock_duration="0 s")
    queue.call("expire_locks")

    assert queue.claim() == []
    queue.later("61 s")
    assert ids(queue.claim()) == [first]


def test_the_second_message_is_not_claimed_while_the_row_of_the_first_is_locked(queue: Queue, other: Queue) -> None:
    first, _ = queue.publish_many(2, channel="c")

    with other.conn.transaction():
        other.rows("SELECT FROM messages.message WHERE id = %s FOR UPDATE", [first])
        assert queue.claim() == []

    assert ids(queue.claim()) == [first]


def test_a_claim_reports_the_end_of_the_hold_as_the_time_of_the_next_claim(queue: Queue) -> None:
    queue.publish_many(2, channel="c")
    queue.settle("retry", queue.claim(), ["boom"])

    _, left = queue.claim_with_next_due()

    assert 30 < left.next_due_s <= 60
