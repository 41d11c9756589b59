"""explain_limit: which limit of its topic a message waits for. Each limit is reached by real claims."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue, Row


@pytest.fixture(autouse=True)
def _worker(queue: Queue) -> None:
    queue.call("register_worker", "w1", "h", 7, "1", ["t"], 10)


def only(queue: Queue, message: int) -> Row:
    """Return the only reason besides the messages that are ahead."""
    (row,) = [each for each in queue.rows("SELECT * FROM messages.explain(%s)", [message]) if each.code != "behind"]
    return row


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
