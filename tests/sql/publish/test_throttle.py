"""Keys that are throttled: messages.publish with p_throttle."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg import errors
from psycopg.types.json import Jsonb

from tests.sql.queue import Background, Queue, Row

PRUNE = "SELECT messages.prune_throttles()"


def throttle(queue: Queue, payload: Any = 1, **named: Any) -> Row:
    return queue.send(payload, **{"key": "k", "throttle": "10 s", **named})


def kept(queue: Queue) -> list[int]:
    """Return the messages by which keys are throttled."""
    return [row.message_id for row in queue.rows("SELECT message_id FROM messages.throttled_key ORDER BY message_id")]


@pytest.fixture(autouse=True)
def clock(queue: Queue) -> None:
    """A clock that stands still: a slow machine throttles as long as a fast one."""
    queue.later("1 hour")


def test_while_the_message_waits_further_publishes_are_ignored(queue: Queue) -> None:
    first = throttle(queue, 1)
    queue.later("1 hour")

    second = throttle(queue, 2)

    assert (first.outcome, tuple(second)) == ("inserted", (first.id, "ignored"))
    assert queue.message(first.id).payload == 1


def test_for_the_time_after_its_start_further_publishes_are_ignored(queue: Queue) -> None:
    first = throttle(queue, 1)
    queue.later("1 hour")
    running = queue.claim()
    queue.later("9 s")
    while_it_runs = throttle(queue, 2)
    queue.settle("complete", running)
    after_its_end = throttle(queue, 3)

    queue.later("2 s")
    next_one = throttle(queue, 4)

    assert tuple(while_it_runs) == tuple(after_its_end) == (first.id, "ignored")
    assert next_one.outcome == "inserted"
    assert queue.message(next_one.id).payload == 4


def test_after_the_time_the_next_is_published_while_the_message_still_runs(queue: Queue) -> None:
    first = throttle(queue, 1)
    queue.claim_one()
    queue.later("11 s")

    second = throttle(queue, 2)

    assert second.outcome == "inserted"
    assert queue.ids() == [first.id, second.id]


def test_the_time_counts_from_the_last_attempt_that_began(queue: Queue) -> None:
    queue.policy("t", max_attempts=3)
    first = throttle(queue, 1)
    queue.settle("retry", [queue.claim_one()], ["boom"], ["1 hour"])
    queue.later("30 minutes")
    before_the_retry = throttle(queue, 2)
    queue.later("31 minutes")
    queue.settle("reject", [queue.claim_one()], ["bad"])

    assert tuple(before_the_retry) == tuple(throttle(queue, 3)) == (first.id, "ignored")


def test_a_message_that_is_cancelled_before_its_retry_has_started_too(queue: Queue) -> None:
    queue.policy("t", max_attempts=3)
    first = throttle(queue, 1)
    queue.settle("retry", [queue.claim_one()], ["boom"], ["1 hour"])
    queue.call("cancel", [first.id])

    assert tuple(throttle(queue, 2)) == (first.id, "ignored")


def test_a_message_that_ends_without_a_start_does_not_throttle(queue: Queue) -> None:
    first = throttle(queue, 1)
    queue.call("cancel", [first.id])

    assert throttle(queue, 2).outcome == "inserted"


def test_other_keys_and_topics_are_not_throttled(queue: Queue) -> None:
    throttle(queue)

    assert [throttle(queue, key="other").outcome, throttle(queue, topic="other").outcome] == ["inserted"] * 2


def test_a_publish_without_throttle_is_not_throttled(queue: Queue) -> None:
    throttle(queue)
    queue.claim()

    assert queue.send(2, key="k", on_conflict="ignore").outcome == "inserted"


def test_a_message_that_was_published_without_throttle_keeps_its_key_while_it_waits_and_after_its_start(
    queue: Queue,
) -> None:
    first = queue.send(1, key="k")
    waiting = throttle(queue, 2)
    queue.claim()

    running = throttle(queue, 3)

    assert tuple(waiting) == tuple(running) == (first.id, "ignored")


def test_of_two_concurrent_publishes_the_second_is_ignored(queue: Queue, other: Queue, background: Background) -> None:
    with other.conn.transaction():
        first = throttle(other, 1)
        second = background.start_blocked(queue, throttle, queue, 2)

    assert tuple(second.result(timeout=60)) == (first.id, "ignored")


def test_a_publish_that_waited_for_another_sees_that_its_message_has_started(
    queue: Queue, other: Queue, background: Background
) -> None:
    with other.conn.transaction():
        first = throttle(other, 1)
        second = background.start_blocked(queue, throttle, queue, 2)
        # To the clock of the other connection, on which the publish is an hour ago.
        other.later("1 hour")
        other.claim_one()

    assert tuple(second.result(timeout=60)) == (first.id, "ignored")


def test_the_second_is_published_if_the_first_is_rolled_back(
    queue: Queue, other: Queue, background: Background
) -> None:
    with other.conn.transaction(force_rollback=True):
        throttle(other, 1)
        second = background.start_blocked(queue, throttle, queue, 2)

    assert second.result(timeout=60).outcome == "inserted"


def test_a_snapshot_that_does_not_see_another_publish_fails_and_does_not_publish_too(
    queue: Queue, other: Queue
) -> None:
    queue.conn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    queue.ids()
    throttle(other, 1)

    with pytest.raises(errors.SerializationFailure):
        throttle(queue, 2)

    queue.conn.execute("ROLLBACK")
    assert len(queue.ids()) == 1


def test_a_publish_that_is_ignored_waits_for_no_other(queue: Queue, other: Queue) -> None:
    first = throttle(queue, 1)
    queue.conn.execute("SET lock_timeout = '100ms'")
    with other.conn.transaction():
        assert throttle(other, 2).outcome == "ignored"

        assert tuple(throttle(queue, 3)) == (first.id, "ignored")


def start(queue: Queue, state: str) -> None:
    """Publish with throttle; the message then waits, runs or has ended."""
    throttle(queue, 1)
    claimed = queue.claim() if state != "waits" else []
    if state == "ended":
        queue.settle("complete", claimed)


THROTTLED = pytest.mark.parametrize("state", ["waits", "runs", "ended"])
POLICIES: list[tuple[str, dict[str, Any], str]] = [
    ("t", {"accept_publishes": False}, "PGR03"),
    ("*", {"accept_publishes": False}, "PGR03"),
    ("t", {"max_payload_bytes": 3}, "PGR04"),
]


@THROTTLED
def test_what_the_topic_refuses_is_refused_too_while_its_key_is_throttled(queue: Queue, state: str) -> None:
    start(queue, state)

    for topic, policy, code in POLICIES:
        with queue.conn.transaction(force_rollback=True):
            queue.policy(topic, **policy)
            with pytest.raises(psycopg.Error) as caught, queue.conn.transaction():
                throttle(queue, "long")
        assert caught.value.sqlstate == code


@THROTTLED
def test_what_no_column_can_hold_is_refused_too_while_its_key_is_throttled(queue: Queue, state: str) -> None:
    start(queue, state)

    for named in ({"priority": 10}, {"headers": Jsonb([])}, {"max_attempts": -1}, {"channel": ""}):
        with pytest.raises(errors.CheckViolation):
            throttle(queue, **named)


def test_a_predecessor_that_does_not_exist_is_refused_while_the_key_is_throttled(queue: Queue) -> None:
    throttle(queue, 1)

    with pytest.raises(psycopg.Error) as caught:
        queue.row("SELECT messages.publish('t', '1', p_key => 'k', p_throttle => '10 s', p_after => '{999}')")

    assert caught.value.sqlstate == "PGR08"


@pytest.mark.parametrize("policy", [{"max_depth": 1}, {"publish_rate": 0.001, "burst": 1}])
def test_a_message_that_is_ignored_is_not_counted(queue: Queue, policy: dict[str, Any]) -> None:
    queue.policy("t", **policy)
    first = throttle(queue, 1)

    assert tuple(throttle(queue, 2)) == (first.id, "ignored")
    with pytest.raises(psycopg.Error, match="topic t"):
        throttle(queue, 3, key="other")


def test_a_message_that_a_limit_refuses_does_not_throttle_its_key(queue: Queue) -> None:
    queue.policy("t", max_depth=1)
    queue.publish()
    with queue.conn.transaction(), pytest.raises(psycopg.Error, match="is full"), queue.conn.transaction():
        throttle(queue, 1)
    queue.settle("complete", queue.claim())

    assert throttle(queue, 2).outcome == "inserted"


def test_a_message_that_a_full_topic_drops_does_not_throttle(queue: Queue) -> None:
    queue.policy("t", max_depth=1, on_full="drop")
    queue.publish()
    dropped = throttle(queue)
    queue.settle("complete", queue.claim())

    assert (dropped.outcome, throttle(queue).outcome) == ("dropped", "inserted")


def test_a_key_that_its_topic_holds_for_longer_is_held(queue: Queue) -> None:
    queue.policy("t", key_ttl="1 hour")
    first = throttle(queue, 1)
    queue.settle("complete", queue.claim())
    queue.later("11 s")

    assert tuple(throttle(queue, 2)) == (first.id, "held")


def test_in_a_topic_with_subscribers_the_time_counts_from_the_publish(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.subscription (topic, subscriber) VALUES ('t', 's')")
    first = throttle(queue, 1)
    second = throttle(queue, 2)
    queue.claim_one("s")
    queue.later("11 s")
    third = throttle(queue, 3)

    assert (first.outcome, tuple(second), third.outcome) == ("inserted", (first.id, "ignored"), "inserted")
    assert len(queue.ids()) == 2


def test_the_time_counts_from_the_publish_of_a_message_that_the_archive_does_not_have(queue: Queue) -> None:
    queue.policy("t", archive_success="none")
    first = throttle(queue, 1)
    queue.settle("complete", queue.claim())
    second = throttle(queue, 2)
    queue.later("11 s")

    assert tuple(second) == (first.id, "ignored")
    assert throttle(queue, 3).outcome == "inserted"


def test_rows_of_keys_that_are_free_are_deleted_and_others_stay(queue: Queue) -> None:
    throttle(queue, key="ended")
    queue.settle("complete", queue.claim())
    waits = throttle(queue, key="waits")
    queue.later("1 minute")
    queue.claim_one()

    deleted = queue.value(PRUNE)

    assert (deleted, kept(queue)) == (1, [waits.id])
    queue.later("2 minutes")
    assert (queue.value(PRUNE), kept(queue)) == (1, [])
