"""messages.explain where a worker handles the topic: limits, channels and the queue ahead."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue, Row

# explain_channel: explain_channel: which limit of its channel a message waits for. Each limit is reached by real
# claims.


@pytest.fixture(autouse=True)
def _worker(queue: Queue) -> None:
    queue.call("register_worker", "w1", "h", 7, "1", ["t"], 10)


def only(queue: Queue, message: int) -> Row:
    """Return the only reason except the messages of its channel that are ahead."""
    (row,) = [each for each in queue.rows("SELECT * FROM messages.explain(%s)", [message]) if each.code != "behind"]
    return row


def test_a_channel_at_its_limit_names_the_holders(queue: Queue) -> None:
    queue.policy(channel_concurrency=2)
    ids = queue.publish_many(3, channel="acme")
    claimed = queue.claim(worker="w1/0")

    row = only(queue, ids[2])

    assert [each.id for each in claimed] == ids[:2]
    assert row.code == "channel_full"
    assert row.reason.startswith("channel acme of topic t has reached its limit of 2; running on w1/0 (message ")
    assert sorted(holder["id"] for holder in row.detail["held"]) == ids[:2]


def test_the_limit_of_a_single_channel_counts(queue: Queue) -> None:
    queue.policy(channel_concurrency=1)
    queue.conn.execute("INSERT INTO messages.channel (topic, channel, concurrency) VALUES ('t', 'acme', 0)")
    ids = queue.publish_many(2, channel="acme")
    queue.claim(limit=1)

    assert only(queue, ids[1]).code == "ready"


def test_in_an_ordered_topic_the_running_message_comes_first(queue: Queue) -> None:
    queue.policy(ordered=True)
    first, second = queue.publish_many(2, channel="acme")
    queue.claim(worker="w1/0")

    row = only(queue, second)

    assert row.code == "ordered"
    assert (
        row.reason
        == f"channel acme of topic t is processed in order, one message at a time; now running: w1/0 (message {first})"
    )


def test_in_an_ordered_topic_a_message_that_backs_off_holds_its_channel(queue: Queue) -> None:
    queue.policy(ordered=True, max_attempts=3)
    first, second = queue.publish_many(2, channel="acme")
    queue.later("0")
    queue.settle("retry", queue.claim(), ["boom"], ["8 s"])

    assert queue.claim() == []
    behind, itself = only(queue, second), only(queue, first)

    assert behind.code == "ordered"
    assert behind.reason == (
        f"channel acme of topic t is processed in order: message {first} comes first, "
        "and its next attempt is due in 8s; "
        f"to continue without it: `pgrouse message skip {first}`"
    )
    assert itself.code == "retrying"
    assert itself.reason == (
        "attempt 1 of 3 ended as failed: boom; the next is due in 8s, and channel acme of topic t waits for it"
    )


def test_a_channel_with_a_minimum_interval_shows_when_the_next_begins(queue: Queue) -> None:
    queue.policy(channel_min_interval="20 s")
    queue.later("0")
    first, second = queue.publish_many(2, channel="acme")
    queue.settle("complete", queue.claim())
    queue.later("5 s")

    row = only(queue, second)

    assert queue.archived(first) is not None
    assert queue.claim() == []
    assert (row.code, row.reason) == (
        "channel_interval",
        "channel acme of topic t starts one message every 20s: the next in 15s",
    )


# explain_limit: explain_limit: which limit of its topic a message waits for. Each limit is reached by real claims.


def test_a_topic_at_its_limit_names_the_holders(queue: Queue) -> None:
    queue.policy(max_concurrency=2)
    ids = queue.publish_many(3)
    claimed = queue.claim(worker="w1/0")

    row = only(queue, ids[2])

    assert [each.id for each in claimed] == ids[:2]
    assert row.code == "topic_full"
    assert row.reason.startswith("topic t has reached its limit of 2; running on w1/0 (message ")
    assert (row.detail["limit"], len(row.detail["held"])) == (2, 2)


def test_a_free_slot_holds_up_no_message(queue: Queue) -> None:
    queue.policy(max_concurrency=3)
    ids = queue.publish_many(3)
    queue.claim(limit=2)

    assert only(queue, ids[2]).code == "ready"


def test_a_rate_shows_when_the_next_begins(queue: Queue) -> None:
    queue.policy(dequeue_rate=0.1, burst=2)
    queue.later("0")
    ids = queue.publish_many(3)
    claimed = queue.claim()
    queue.later("4 s")

    row = only(queue, ids[2])

    assert [each.id for each in claimed] == ids[:2]
    assert queue.claim() == []
    assert (row.code, row.reason) == ("rate", "topic t starts 0.1 messages per second: the next in 6s")
    queue.later("7 s")
    assert [each.id for each in queue.claim()] == ids[2:]


def test_a_breaker_that_probes_lets_few_run(queue: Queue) -> None:
    queue.policy(breaker={"probes": 1})
    queue.conn.execute(
        "INSERT INTO messages.breaker (topic, position, probe_at) VALUES ('t', 'open', messages.now() - interval '1 s')"
    )
    ids = queue.publish_many(2)
    claimed = queue.claim(worker="w1/0")

    row = only(queue, ids[1])

    assert [each.id for each in claimed] == ids[:1]
    assert row.code == "probing"
    assert row.reason == (
        f"the breaker of topic t lets 1 run to see whether things are well again: w1/0 (message {ids[0]})"
    )


# explain_message: explain_own: properties of the message itself that keep it from being claimed.


def first(queue: Queue, message: int) -> Row:
    return queue.rows("SELECT * FROM messages.explain(%s)", [message])[0]


def test_a_delayed_message_shows_when_it_is_due(queue: Queue) -> None:
    queue.later("0")
    message = queue.publish(wait="5 minutes")

    row = first(queue, message)

    assert (row.code, row.reason) == ("delayed", "it is delayed, due in 5m")


def test_a_message_that_backs_off_shows_its_error(queue: Queue) -> None:
    queue.policy(max_attempts=5, backoff={"kind": "constant", "base": "7 s", "jitter": 0})
    message = queue.publish()
    claimed = queue.claim()
    queue.later("0")
    queue.settle("retry", claimed, ["Traceback\nValueError: boom"])

    row = first(queue, message)

    assert row.code == "retrying"
    assert row.reason == "attempt 1 of 5 ended as failed: ValueError: boom; the next is due in 7s"


def test_a_deferred_message_shows_that_its_handler_deferred_it(queue: Queue) -> None:
    message = queue.publish()
    queue.settle("defer", queue.claim(), ["1 hour"])

    assert first(queue, message).code == "deferred"


def test_an_expired_message_waits_for_the_tick(queue: Queue) -> None:
    queue.later("0")
    message = queue.publish()
    queue.conn.execute("UPDATE messages.message SET expires_at = messages.now() + interval '1 s'")
    queue.later("4 s")

    row = first(queue, message)

    assert row.code == "outlived"
    assert row.reason.startswith("its time to live ended 3s ago")


def test_a_message_whose_attempts_are_used_up_will_be_archived(queue: Queue) -> None:
    queue.policy(max_attempts=3, backoff={"kind": "none"})
    message = queue.publish()
    for _ in range(2):
        queue.settle("retry", queue.claim(), ["boom"])
    queue.policy(max_attempts=2)

    row = first(queue, message)

    assert (row.code, row.reason) == (
        "attempts_used_up",
        "it has had 2 of 2 attempts: the next claim archives it as failed",
    )
