"""messages.defer with p_pauses: a deferral that pauses its topic or channel until the message comes back."""

from __future__ import annotations

from datetime import timedelta

import pytest
from psycopg import errors

from tests.server.postgres import Database
from tests.sql.queue import Queue

IN_A_MINUTE = [timedelta(minutes=1)]


@pytest.fixture(autouse=True)
def stopped_clock(queue: Queue) -> None:
    queue.later("0")


def pause_of(queue: Queue, topic: str) -> timedelta:
    """Return how long a topic is paused."""
    pause: timedelta = queue.value("SELECT resume_at - messages.now() FROM messages.topic WHERE topic = %s", [topic])
    return pause


def test_nothing_of_the_topic_is_claimed_until_the_message_comes_back(queue: Queue) -> None:
    first, second = queue.publish_many(2)
    held = queue.claim_one()

    assert queue.settle("defer", [held], IN_A_MINUTE, pauses=["topic"], reasons=["429"]) == []

    assert queue.claim() == []
    paused = queue.row("SELECT state, paused_reason FROM messages.topic_state(ARRAY['t'])")
    assert (paused.state, paused.paused_reason) == ("paused", "429")
    queue.later("1 minute")
    assert [(c.id, c.attempt) for c in queue.claim()] == [(second, 1), (first, 1)]


def test_only_the_channel_of_the_message_is_paused(queue: Queue) -> None:
    queue.publish_many(2, channel="acme")
    other = queue.publish(channel="other")
    held = queue.claim_one()

    queue.settle("defer", [held], IN_A_MINUTE, pauses=["channel"])

    assert [c.id for c in queue.claim()] == [other]
    queue.later("1 minute")
    assert len(queue.claim()) == 2


def test_a_message_without_a_channel_pauses_no_topic_instead(queue: Queue) -> None:
    queue.publish_many(2)

    queue.settle("defer", [queue.claim_one()], IN_A_MINUTE, pauses=["channel"])

    assert len(queue.claim()) == 1


def test_messages_that_are_deferred_together_pause_until_the_last_comes_back(queue: Queue) -> None:
    queue.publish_many(3)
    queue.publish("u")
    held = [*queue.claim(), *queue.claim("u")]

    queue.settle("defer", held, [timedelta(minutes=n) for n in (1, 3, 2, 5)], pauses=["topic", "topic", None, "topic"])

    ends = queue.rows(
        "SELECT topic, resume_at - messages.now() FROM messages.topic WHERE topic IN ('t', 'u') ORDER BY 1"
    )
    assert ends == [("t", timedelta(minutes=3)), ("u", timedelta(minutes=5))]


@pytest.mark.parametrize("resume_in", [None, "1 hour"])
def test_a_pause_that_lasts_longer_stays_as_it_is(queue: Queue, resume_in: str | None) -> None:
    queue.publish()
    held = queue.claim_one()
    queue.call("pause", "t", "an operator", resume_in)
    before = queue.row("SELECT * FROM messages.topic WHERE topic = 't'")

    queue.settle("defer", [held], IN_A_MINUTE, pauses=["topic"])

    assert queue.row("SELECT * FROM messages.topic WHERE topic = 't'") == before


def test_a_shorter_pause_is_extended(queue: Queue) -> None:
    queue.publish()
    held = queue.claim_one()
    queue.call("pause", "t", "an operator", "1 second")

    queue.settle("defer", [held], IN_A_MINUTE, pauses=["topic"])

    assert pause_of(queue, "t") == timedelta(minutes=1)


def test_a_worker_that_lost_its_lock_pauses_nothing(queue: Queue) -> None:
    queue.publish_many(2)
    held = queue.claim_one()

    lost = queue.call("defer", [held.id], [held.claim_id + 1], IN_A_MINUTE, pauses=["topic"])

    assert lost == [held.id]
    assert len(queue.claim()) == 1


def test_without_a_time_or_with_one_that_is_over_nothing_is_paused(queue: Queue) -> None:
    queue.publish_many(3)

    times = [None, timedelta(seconds=-1), timedelta.min]
    queue.settle("defer", queue.claim(), times, pauses=["topic", "topic", "topic"])

    assert len(queue.claim()) == 3


def test_an_endless_pause_is_cut(queue: Queue) -> None:
    queue.publish()

    held = queue.claim_one()
    queue.call("defer", [held.id], [held.claim_id], None, ["infinity"], pauses=["topic"])

    assert queue.value("SELECT resume_at - messages.now() FROM messages.topic WHERE topic = 't'") == timedelta(
        days=3650
    )


def test_while_others_keep_the_policies_the_message_comes_back_without_a_pause(
    queue: Queue, database: Database
) -> None:
    queue.publish_many(2)
    held = queue.claim_one()
    other = Queue(database.connect())

    with other.conn.transaction():
        other.call("lock_policies")
        assert queue.settle("defer", [held], IN_A_MINUTE, pauses=["topic"]) == []

    assert len(queue.claim()) == 1
    queue.later("1 minute")
    assert [c.id for c in queue.claim()] == [held.id]


def test_another_word_is_refused(queue: Queue) -> None:
    queue.publish()

    with pytest.raises(errors.InvalidParameterValue, match="a deferral pauses a topic or a channel, and was asked for"):
        queue.settle("defer", [queue.claim_one()], IN_A_MINUTE, pauses=["chanel"])
