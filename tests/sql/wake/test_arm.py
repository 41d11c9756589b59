"""Sleepers: which ones are armed until when, and who wakes them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from pgrouse.client.call import run
from pgrouse.client.calls.processing.claim import claim_with_next_due
from tests.sql.lock_timeouts import extend_timeout
from tests.sql.queue import Background, Queue

# messages.arm: a worker records that it is about to sleep. (Which workers a publish notifies: test_notify.py.)

SLEEPERS = (
    "SELECT worker, topics, next_look_at - clock_timestamp() AS look_in, armed_until - clock_timestamp() "
    "AS armed_for FROM messages.sleeper ORDER BY worker"
)


def test_the_row_has_the_topics_of_the_worker_and_the_time_of_its_next_poll(queue: Queue) -> None:
    queue.call("arm", "w", ["a", "b"], timedelta(minutes=10))

    sleeper = queue.row(SLEEPERS)
    assert (sleeper.worker, sleeper.topics) == ("w", ["a", "b"])
    assert timedelta(minutes=9) < sleeper.look_in <= timedelta(minutes=10)
    assert timedelta(minutes=19) < sleeper.armed_for <= timedelta(minutes=20)


def test_arming_again_updates_the_row(queue: Queue) -> None:
    queue.call("arm", "w", ["a"], timedelta(minutes=10))

    queue.call("arm", "w", ["b"], timedelta(minutes=30))

    sleeper = queue.row(SLEEPERS)
    assert sleeper.topics == ["b"]
    assert timedelta(minutes=29) < sleeper.look_in <= timedelta(minutes=30)
    assert timedelta(minutes=59) < sleeper.armed_for <= timedelta(minutes=60)


def test_armed_until_is_raised_before_the_row_is_committed(queue: Queue) -> None:
    queue.call("arm", "w", ["t"], timedelta(hours=1))

    assert queue.value(
        "SELECT pg_sequence_last_value('messages.armed_until') > extract(epoch FROM now() + interval '2 hours') - 60"
    )


# messages.disarm: a worker records that it is awake. (Which workers a publish notifies: test_notify.py.)


def test_disarming_a_worker_that_is_not_armed_writes_nothing(queue: Queue) -> None:
    queue.arm()
    queue.call("disarm", "sleeper")
    before = queue.row("SELECT xmin, * FROM messages.sleeper")

    queue.call("disarm", "sleeper")
    queue.call("disarm", "awake")

    assert queue.rows("SELECT xmin, * FROM messages.sleeper") == [before]


# messages.draw_xid: a transaction id that is greater than that of every INSERT in progress. (The protocol:
# test_notify.py.)


@pytest.mark.every_server
def test_it_is_the_id_of_its_own_transaction(queue: Queue) -> None:
    with queue.conn.transaction():
        assert queue.call("draw_xid") == int(queue.value("SELECT pg_current_xact_id()"))


@pytest.mark.every_server
def test_it_is_greater_than_the_id_of_every_earlier_insert(queue: Queue, other: Queue) -> None:
    with other.conn.transaction():
        other.publish()
        assert queue.call("draw_xid") > int(other.value("SELECT pg_current_xact_id()"))


# messages.oldest_running_xid: all transactions with a lower id have ended. (The protocol is in test_notify.py.)


@pytest.mark.every_server
def test_it_does_not_pass_a_running_transaction(queue: Queue, other: Queue) -> None:
    with other.conn.transaction():
        running = other.call("draw_xid")
        assert queue.call("oldest_running_xid") <= running

    assert queue.call("oldest_running_xid") > running


@pytest.mark.every_server
def test_a_reader_without_a_transaction_id_does_not_hold_it_back(queue: Queue, other: Queue) -> None:
    with other.conn.transaction():
        other.ids()
        own = queue.call("draw_xid")

        assert queue.call("oldest_running_xid") > own


@pytest.mark.every_server
def test_a_claim_reports_what_was_running_when_it_began(queue: Queue, other: Queue, background: Background) -> None:
    # The claim may not have seen what such a transaction published, although that has ended by now.
    extend_timeout(queue, "lock_topic", "250ms")
    queue.policy(max_concurrency=2)
    queue.publish_many(2)

    with queue.conn.transaction():
        running = queue.call("draw_xid")
        queue.claim(limit=1)
        claim = background.start(run, other.conn, claim_with_next_due("w", ["t"], 1))
        while not background.is_blocked(other):
            assert not claim.done()

    found = claim.result(timeout=60)
    assert (len(found.messages), found.oldest_xid) == (1, running)


# messages.ready_topics: which topics have a due message, for requests that wait for one.


def ready_topics(queue: Queue, *topics: str) -> list[str]:
    return [row[0] for row in queue.rows("SELECT messages.ready_topics(%s::text[])", [list(topics)])]


def test_it_lists_topics_with_a_due_message_in_their_order(queue: Queue) -> None:
    for topic in ("a", "b", "other"):
        queue.publish(topic)
    queue.publish("later", wait="1 hour")

    assert ready_topics(queue, "b", "later", "absent", "a") == ["b", "a"]


def test_a_locked_message_is_not_due(queue: Queue) -> None:
    queue.publish("a")
    queue.publish("b")
    queue.claim("a")

    assert ready_topics(queue, "a", "b") == ["b"]
