"""messages.reject_staged: rows that the policies of their topics refuse do not keep the others from being published."""

from __future__ import annotations

from tests.sql.queue import Queue
from tests.sql.staging import publish_rows, rejected


def test_topics_that_accept_no_publishes_are_rejected(queue: Queue) -> None:
    queue.policy("*", accept_publishes=False)
    queue.policy("known", accept_publishes=True)

    done = publish_rows(queue, {"topic": "known"}, {"topic": "unknown"})

    assert (done.published, done.rejected) == (1, 1)
    assert [row.reason for row in rejected(queue)] == ["topic unknown does not accept publishes"]


def test_what_is_larger_than_its_topic_permits_is_rejected(queue: Queue) -> None:
    queue.policy(max_payload_bytes=10)

    done = publish_rows(
        queue,
        {"payload": '"12345678"'},
        {"payload": '"123456789"'},
        {"body": b"12345678901"},
        {"topic": "other", "payload": '"123456789"'},
    )

    assert (done.published, done.rejected) == (2, 2)
    assert {row.reason for row in rejected(queue)} == {"it has 11 bytes, max_payload_bytes of topic t is 10"}


def test_what_was_given_is_told_of_rows_that_are_rejected_here_too(queue: Queue) -> None:
    queue.policy(max_payload_bytes=1)

    publish_rows(queue, {"payload": '{"n": 1}', "channel": "c", "delay": "1 hour"})

    (row,) = rejected(queue)
    assert row.given == {"topic": "t", "payload": '{"n": 1}', "channel": "c", "delay": "01:00:00", "priority": 5}
