"""explain_stopped: a pause, an open breaker, no worker."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue, Row


def rows(queue: Queue, message: int) -> list[Row]:
    return queue.rows("SELECT * FROM messages.explain(%s)", [message])


@pytest.fixture
def worker(queue: Queue) -> None:
    """A live worker of topic t."""
    queue.call("register_worker", "w1", "h", 7, "1", ["t"], 10)


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(
    ("topic", "channel", "what"),
    [("*", None, "every topic"), ("t", None, "topic t"), ("t", "acme", "channel acme of topic t")],
)
def test_a_pause_shows_user_end_and_reason(queue: Queue, topic: str, channel: str | None, what: str) -> None:
    queue.later("0")
    message = queue.publish(channel="acme")
    queue.call("pause", topic, "too loud", resume_in="10 minutes", channel=channel)
    queue.later("5 minutes")
    queue.call("touch_worker", "w1", {})

    (row,) = rows(queue, message)

    user = queue.value("SELECT session_user::text")
    assert row.code == "paused"
    assert row.reason == f"{what} has been paused for 5m by {user}, for another 5m: too loud"
    assert (row.detail["topic"], row.detail["channel"], row.detail["reason"]) == (topic, channel, "too loud")


@pytest.mark.usefixtures("worker")
def test_a_pause_without_an_end_lasts_until_it_is_resumed(queue: Queue) -> None:
    message = queue.publish()
    queue.call("pause", "t")

    (row,) = rows(queue, message)

    assert row.reason.endswith("until it is resumed")


@pytest.mark.usefixtures("worker")
def test_a_pause_of_another_channel_or_an_expired_one_holds_up_no_message(queue: Queue) -> None:
    message = queue.publish(channel="acme")
    queue.call("pause", "t", channel="other")
    queue.call("pause", "t", resume_in="1 s")
    queue.later("2 s")

    assert [row.code for row in rows(queue, message)] == ["ready"]


@pytest.mark.usefixtures("worker")
def test_an_open_breaker_shows_why_and_when_it_probes(queue: Queue) -> None:
    queue.later("0")
    message = queue.publish()
    queue.policy(breaker={"pause": "20s"})
    queue.conn.execute(
        """
        INSERT INTO messages.breaker (topic, position, changed_at, probe_at, reason)
        VALUES ('t', 'open', messages.now(), messages.now() + interval '20 s', '9 of 10 failed')
        """
    )

    (row,) = rows(queue, message)

    assert row.code == "breaker_open"
    assert row.reason == "the breaker of topic t has been open for 0s: 9 of 10 failed; it lets a probe through in 20s"


@pytest.mark.usefixtures("worker")
def test_a_breaker_that_was_removed_from_the_policy_holds_up_no_message(queue: Queue) -> None:
    message = queue.publish()
    queue.conn.execute(
        "INSERT INTO messages.breaker (topic, position, probe_at) VALUES ('t', 'open', messages.now() + interval '1 h')"
    )

    assert [row.code for row in rows(queue, message)] == ["ready"]


def test_a_topic_without_a_live_worker_is_named(queue: Queue) -> None:
    queue.call("register_worker", "w2", "h", 8, "1", ["other"], 10)
    message = queue.publish()

    (row,) = rows(queue, message)

    assert row.code == "unhandled"
    assert row.reason == "no live worker handles topic t: start one with a handler for it"
    assert row.detail["live_workers"] == 1
