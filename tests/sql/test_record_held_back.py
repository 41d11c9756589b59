"""messages.record_held_back: what a claim tells besides its rows: what a limit held back, and until when."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.sql.queue import Queue


def held(queue: Queue) -> dict[str, Any]:
    return dict(json.loads(queue.value("SELECT current_setting('messages.held_back', true)") or "{}"))


def test_it_is_told_what_was_held_back_and_until_when(queue: Queue) -> None:
    with queue.conn.transaction():
        queue.call("record_held_back", "t", "topic", "2026-01-02 03:04:05.678901+00")
        queue.call("record_held_back", "u", "channels", None)

        assert set(held(queue)) == {"topic t", "channels u"}
        until = queue.value("SELECT %s::timestamptz = '2026-01-02 03:04:05.678901+00'", [held(queue)["topic t"]])
        assert until is True
        assert held(queue)["channels u"] is None


def test_infinity_is_a_time_that_nobody_knows(queue: Queue) -> None:
    with queue.conn.transaction():
        queue.call("record_held_back", "t", "topic", "infinity")

        assert held(queue) == {"topic t": None}


def test_it_ends_with_the_transaction(queue: Queue) -> None:
    with queue.conn.transaction():
        queue.call("record_held_back", "t", "topic", None)

    assert held(queue) == {}


def test_every_claim_begins_with_nothing_held_back(queue: Queue) -> None:
    with queue.conn.transaction():
        queue.call("record_held_back", "t", "topic", None)

        queue.claim()

        assert held(queue) == {}


@pytest.mark.parametrize(
    ("settings", "columns", "part"),
    [
        ({"max_concurrency": 1}, {}, "topic t"),
        ({"dequeue_rate": 1}, {}, "topic t"),
        ({"paused_at": "2026-01-01"}, {}, "topic t"),
        ({"channel_concurrency": 1}, {"channel": "c"}, "channels t"),
        ({"channel_min_interval": "1 hour"}, {"channel": "c"}, "channels t"),
        ({"ordered": True}, {"channel": "c"}, "channels t"),
    ],
    ids=str,
)
def test_whatever_limit_held_messages_back_a_claim_tells(
    queue: Queue, settings: dict[str, Any], columns: dict[str, Any], part: str
) -> None:
    queue.policy(**settings)
    queue.publish_many(3, **columns)
    queue.claim(limit=1)

    with queue.conn.transaction():
        assert queue.claim() == []

        assert set(held(queue)) == {part}


def test_a_claim_that_finds_all_that_it_may_take_tells_nothing(queue: Queue) -> None:
    queue.policy(max_concurrency=5, channel_concurrency=5)
    queue.publish_many(2)
    queue.publish_many(2, channel="c")

    with queue.conn.transaction():
        assert len(queue.claim()) == 4

        assert held(queue) == {}
