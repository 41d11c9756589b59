"""explain_channel: which limit of its channel a message waits for. Each limit is reached by real claims."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue, Row


@pytest.fixture(autouse=True)
def _worker(queue: Queue) -> None:
    queue.call("register_worker", "w1", "h", 7, "1", ["t"], 10)


def only(queue: Queue, message: int) -> Row:
    """Return the only reason besides the messages of its channel that are ahead."""
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
        f"channel acme of topic t is processed in order: message {first} comes first, and its next attempt is due in 8s; "
        f"to continue without it: `pgrouse message skip {first}`"
    )
    assert itself.code == "retrying"
    assert itself.reason.startswith("its attempt 1 ended as failed: boom; the next is due in 8s")


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
