"""Pauses of topics and channels, and purging a topic."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.sql.queue import Listener, Queue

# pause: pause: stops a topic, a channel or everything, with user, reason and end.

PAUSED = "SELECT paused_at, paused_by, paused_reason, resume_at FROM messages.topic WHERE topic = %s"
PAUSED_CHANNEL = (
    "SELECT paused_at, paused_by, paused_reason, resume_at FROM messages.channel WHERE topic = %s AND channel = %s"
)


def test_a_paused_topic_records_begin_user_and_reason_and_keeps_its_other_columns(queue: Queue) -> None:
    queue.policy("mail", max_attempts=7)

    queue.call("pause", "mail", "the server is down")

    paused = queue.row(PAUSED, ["mail"])
    user = queue.value("SELECT session_user::text")
    assert (paused.paused_by, paused.paused_reason, paused.resume_at) == (user, "the server is down", None)
    assert abs(paused.paused_at - queue.value("SELECT clock_timestamp()")) < timedelta(minutes=1)
    assert queue.value("SELECT max_attempts FROM messages.topic WHERE topic = 'mail'") == 7


def test_a_channel_is_paused_alone(queue: Queue) -> None:
    queue.call("pause", "mail", channel="acme", reason="too loud")

    assert queue.row(PAUSED_CHANNEL, ["mail", "acme"]).paused_reason == "too loud"
    assert queue.row(PAUSED, ["mail"]) is None


def test_the_end_of_a_pause_counts_from_the_servers_clock_or_is_a_point_in_time(queue: Queue) -> None:
    queue.later("0")
    tomorrow = queue.value("SELECT date_trunc('day', clock_timestamp()) + interval '2 days'")

    until = queue.call("pause", "mail", resume_in="10 minutes")

    paused = queue.row(PAUSED, ["mail"])
    assert until == paused.resume_at == paused.paused_at + timedelta(minutes=10)
    assert queue.call("pause", "mail", until=tomorrow) == tomorrow


def test_pausing_again_replaces_reason_and_end_and_keeps_the_beginning(queue: Queue) -> None:
    queue.call("pause", "mail", "first", resume_in="1 hour")
    since = queue.row(PAUSED, ["mail"]).paused_at

    queue.call("pause", "mail", "second")

    paused = queue.row(PAUSED, ["mail"])
    assert (paused.paused_at, paused.paused_reason, paused.resume_at) == (since, "second", None)


def test_pausing_after_an_expired_pause_sets_a_new_beginning(queue: Queue) -> None:
    queue.call("pause", "mail", "first", resume_in="1 minute")
    since = queue.row(PAUSED, ["mail"]).paused_at
    queue.later("2 minutes")

    queue.call("pause", "mail", "second")

    assert queue.row(PAUSED, ["mail"]).paused_at > since + timedelta(minutes=1)


@pytest.mark.parametrize("channel", [None, "acme"])
def test_a_pause_notifies_the_daemons(queue: Queue, listen: Callable[..., Listener], channel: str | None) -> None:
    listener = listen("topic_changed")

    queue.call("pause", "mail", channel=channel)

    assert "" in listener.received()


@pytest.mark.parametrize(
    ("given", "error", "fix"),
    [
        ({"topic": None}, "pause needs a topic", "name one, or * for all"),
        ({"topic": "a b"}, '"a b" is no name of a topic', "use 1 to 200 of"),
        ({"topic": "mail", "channel": "\n"}, "is no name of a channel", "use 1 to 200 printable characters"),
        ({"topic": "*", "channel": "acme"}, '"*" is no name of a topic that has channels', "use 1 to 200 of"),
        ({"topic": "mail", "resume_in": "0"}, "resume_in of a pause is 00:00:00", "use an interval from 1 ms"),
        ({"topic": "mail", "resume_in": "11 years"}, "resume_in of a pause is 11 years", "to 3650 days"),
        ({"topic": "mail", "until": "2020-01-01Z"}, "until of a pause is 2020-01-01", "use a time to come"),
        ({"topic": "mail", "until": "infinity"}, "until of a pause is infinity", "within 3650 days"),
        ({"topic": "mail", "resume_in": "1 h", "until": "2030-01-01Z"}, "both resume_in", "give one of them"),
    ],
)
def test_invalid_arguments_are_refused_with_the_value_and_the_fix(
    queue: Queue, given: dict[str, Any], error: str, fix: str
) -> None:
    with pytest.raises((errors.InvalidParameterValue, errors.NullValueNotAllowed)) as caught:
        queue.call("pause", **given)

    assert error in (caught.value.diag.message_primary or "")
    assert fix in (caught.value.diag.message_hint or "")


# resume: resume: ends a pause and notifies sleepers.


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
    """Otherwise each claim would read the channels of its topic one by one."""
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


# is_paused: is_paused: whether a pause applies at a time.


@pytest.mark.parametrize(
    ("paused_at", "resume_at", "holds"),
    [
        (None, None, False),
        (None, "2027-01-01T11:00Z", False),
        ("2027-01-01T09:00Z", None, True),
        ("2027-01-01T09:00Z", "2027-01-01T10:00:01Z", True),
        ("2027-01-01T09:00Z", "2027-01-01T10:00Z", False),
    ],
)
def test_a_pause_applies_from_its_beginning_to_its_end(
    queue: Queue, paused_at: str | None, resume_at: str | None, holds: bool
) -> None:
    assert queue.value(
        "SELECT messages.is_paused(%s::timestamptz, %s::timestamptz, '2027-01-01T10:00Z')", [paused_at, resume_at]
    ) is (holds)


# messages.purge_topic: deletes the waiting messages of a topic, batch by batch.


def test_it_deletes_waiting_messages_batch_by_batch_and_no_others(queue: Queue) -> None:
    queue.publish_many(3)
    queue.publish_many(2, channel="c")
    queue.publish_many(2, wait="1 hour", priority=9)
    (runs,) = queue.claim(limit=1)
    other = queue.publish("other")

    deleted = [queue.call("purge_topic", "t", 4) for _ in range(3)]

    assert deleted == [4, 2, 0]
    assert queue.ids() == [runs.id, other]
    assert queue.rows("SELECT FROM messages.message_archive") == []
    audit = queue.rows("SELECT topic, detail FROM messages.audit WHERE action = 'purge_topic' ORDER BY id")
    assert [(row.topic, row.detail["count"]) for row in audit] == [("t", 4), ("t", 2)]


def test_messages_that_were_published_later_stay(queue: Queue) -> None:
    *_, last = queue.publish_many(3)
    later = queue.publish(priority=0)

    assert queue.call("purge_topic", "t", 1000, last) == 3
    assert queue.ids() == [later]


def test_a_locked_row_is_not_waited_for(queue: Queue, other: Queue) -> None:
    held, _ = queue.publish_many(2)
    with other.conn.transaction():
        other.conn.execute("SELECT FROM messages.message WHERE id = %s FOR UPDATE", [held])

        assert queue.call("purge_topic", "t") == 1
    assert queue.ids() == [held]


@pytest.mark.parametrize("given", [(None,), ("t", 0), ("t", 10_001), ("t", None)])
def test_invalid_arguments_are_refused(queue: Queue, given: tuple[Any, ...]) -> None:
    with pytest.raises(psycopg.DataError):
        queue.call("purge_topic", *given)
