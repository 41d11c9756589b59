"""The triggers of messages.channel: the allowed settings of one channel, and the notification of daemons about a change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from psycopg import errors, sql

from tests.sql.queue import Listener, Queue


def write(queue: Queue, **columns: Any) -> None:
    row = {"topic": "mail", "channel": "acme", **columns}
    queue.conn.execute(
        sql.SQL("INSERT INTO messages.channel ({}) VALUES ({})").format(
            sql.SQL(", ").join(map(sql.Identifier, row)), sql.SQL(", ").join(map(sql.Literal, row.values()))
        )
    )


@pytest.mark.parametrize(
    ("setting", "value", "error", "fix"),
    [
        ("concurrency", -1, "concurrency of channel acme of topic mail is -1", "use 1 or more, or 0 for no limit"),
        (
            "min_interval",
            "31 days",
            "min_interval of channel acme of topic mail is 31 days",
            "use an interval up to 30 days, or 0 for none",
        ),
        (
            "min_interval",
            "-1 s",
            "min_interval of channel acme of topic mail is -00:00:01",
            "use an interval up to 30 days, or 0 for none",
        ),
        ("channel", "", '"" is no name of a channel', "use 1 to 200 printable characters"),
        ("channel", "a\nb", '"a\nb" is no name of a channel', "use 1 to 200 printable characters"),
    ],
)
def test_a_bad_value_is_refused_with_channel_setting_value_and_fix(
    queue: Queue, setting: str, value: Any, error: str, fix: str
) -> None:
    with pytest.raises(errors.InvalidParameterValue) as caught:
        write(queue, **{setting: value})

    assert (caught.value.diag.message_primary, caught.value.diag.message_hint) == (error, fix)


def test_the_defaults_have_no_channels(queue: Queue) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="no name of a topic that has channels"):
        write(queue, topic="*", concurrency=1)


def test_each_change_notifies_the_daemons(queue: Queue, listen: Callable[..., Listener]) -> None:
    listener = listen("topic_changed")

    write(queue, concurrency=1)
    queue.conn.execute("UPDATE messages.channel SET concurrency = 2")
    queue.conn.execute("DELETE FROM messages.channel")

    assert listener.received() == ["", "", ""]
