"""resume: ends a pause and notifies sleepers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from psycopg import errors

from tests.sql.queue import Listener, Queue


def test_a_resumed_topic_has_no_column_of_the_pause_left(queue: Queue) -> None:
    queue.call("pause", "mail", "why", resume_in="1 hour")

    assert queue.call("resume", "mail") is True

    row = queue.row("SELECT * FROM messages.topic WHERE topic = 'mail'")
    assert (row.paused_at, row.paused_by, row.paused_reason, row.resume_at) == (None, None, None, None)


def test_a_channel_is_resumed_alone(queue: Queue) -> None:
    queue.call("pause", "mail")
    queue.call("pause", "mail", channel="acme")

    assert queue.call("resume", "mail", "acme") is True

    assert queue.value("SELECT count(*) FROM messages.channel WHERE paused_at IS NOT NULL") == 0
    assert queue.value("SELECT paused_at FROM messages.topic WHERE topic = 'mail'") is not None


def test_a_channel_without_its_own_limits_leaves_no_row(queue: Queue) -> None:
    """Claims would read the channels of its topic one by one for ever."""
    queue.call("pause", "mail", channel="acme")
    queue.call("pause", "mail", channel="limited")
    queue.conn.execute("UPDATE messages.channel SET concurrency = 2 WHERE channel = 'limited'")

    queue.call("resume", "mail", "acme")
    queue.call("resume", "mail", "limited")

    assert queue.row("SELECT channel, concurrency FROM messages.channel") == ("limited", 2)


@pytest.mark.parametrize("channel", [None, "acme"])
def test_resuming_what_is_not_paused_returns_false(queue: Queue, channel: str | None) -> None:
    assert queue.call("resume", "mail", channel) is False


def test_an_expired_pause_is_cleared_and_counts_as_none(queue: Queue) -> None:
    queue.call("pause", "mail", resume_in="1 minute")
    queue.later("2 minutes")

    assert queue.call("resume", "mail") is False

    assert queue.value("SELECT paused_at FROM messages.topic WHERE topic = 'mail'") is None


def test_resuming_notifies_the_sleepers_of_the_topic(queue: Queue, listen: Callable[..., Listener]) -> None:
    queue.call("pause", "mail")
    queue.arm(topics=["mail"])
    listener = listen("new_message")

    queue.call("resume", "mail")

    assert listener.received() == ["mail"]


def test_resuming_everything_notifies_for_each_topic_that_has_messages(
    queue: Queue, listen: Callable[..., Listener]
) -> None:
    queue.publish("a")
    queue.publish("b", channel="c")
    queue.call("pause", "*")
    queue.arm()
    listener = listen("new_message")

    queue.call("resume", "*")

    assert sorted(listener.received()) == ["a", "b"]


def test_a_topic_is_required(queue: Queue) -> None:
    with pytest.raises(errors.NullValueNotAllowed) as caught:
        queue.call("resume", None)

    assert caught.value.diag.message_hint == "name one, or * for all"
