"""pause: stops a topic, a channel or everything, with user, reason and end."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from psycopg import errors

from tests.sql.queue import Listener, Queue

PAUSED = "SELECT paused_at, paused_by, paused_reason, resume_at FROM messages.topic WHERE topic = %s"
PAUSED_CHANNEL = (
    "SELECT paused_at, paused_by, paused_reason, resume_at FROM messages.channel WHERE topic = %s AND channel = %s"
)


def test_a_paused_topic_records_begin_user_and_reason(queue: Queue) -> None:
    queue.call("pause", "mail", "the server is down")

    paused = queue.row(PAUSED, ["mail"])
    assert (paused.paused_by, paused.paused_reason, paused.resume_at) == (
        queue.value("SELECT session_user::text"),
        "the server is down",
        None,
    )
    assert abs(paused.paused_at - queue.value("SELECT clock_timestamp()")) < timedelta(minutes=1)


def test_a_channel_is_paused_alone(queue: Queue) -> None:
    queue.call("pause", "mail", channel="acme", reason="too loud")

    assert queue.row(PAUSED_CHANNEL, ["mail", "acme"]).paused_reason == "too loud"
    assert queue.row(PAUSED, ["mail"]) is None


def test_a_pause_keeps_the_other_columns_of_the_row(queue: Queue) -> None:
    queue.policy("mail", max_attempts=7)

    queue.call("pause", "mail")

    assert queue.value("SELECT max_attempts FROM messages.topic WHERE topic = 'mail'") == 7


def test_the_end_of_a_pause_counts_from_the_servers_clock(queue: Queue) -> None:
    queue.later("0")

    until = queue.call("pause", "mail", resume_in="10 minutes")

    paused = queue.row(PAUSED, ["mail"])
    assert until == paused.resume_at == paused.paused_at + timedelta(minutes=10)


def test_the_end_of_a_pause_may_be_a_point_in_time(queue: Queue) -> None:
    tomorrow = queue.value("SELECT date_trunc('day', clock_timestamp()) + interval '2 days'")

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
