"""messages.claim_with_next_due: what a claim says besides its messages. (What it claims is in test_claim.py.)"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.sql.queue import Queue


def test_the_last_row_is_no_message_also_where_nothing_is_held_back_and_nothing_waits(queue: Queue) -> None:
    claimed, left = queue.claim_with_next_due()

    assert claimed == []
    assert set(left) == {None}


def test_a_claim_has_the_same_rows_without_the_last_one(queue: Queue) -> None:
    queue.publish_many(2, channel="c", wait="-1 s")
    given = (
        "id",
        "topic",
        "channel",
        "key",
        "priority",
        "attempt",
        "max_attempts",
        "payload",
        "lock_duration_s",
        "runs",
    )

    with queue.conn.transaction(force_rollback=True):
        claimed = queue.claim()
    more, _ = queue.claim_with_next_due()

    assert claimed[0]._fields == more[0]._fields[:-2]
    assert [[getattr(c, name) for name in given] for c in claimed] == [
        [getattr(c, name) for name in given] for c in more
    ]


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
def test_whatever_limit_held_messages_back_a_claim_says(
    queue: Queue, settings: dict[str, Any], columns: dict[str, Any], part: str
) -> None:
    queue.policy(**settings)
    queue.publish_many(3, **columns)
    queue.claim(limit=1)

    claimed, left = queue.claim_with_next_due()

    assert (claimed, left.held_back.keys()) == ([], {part})


def test_a_claim_says_when_to_look_again_where_that_is_known(queue: Queue) -> None:
    queue.policy("known", paused_at="2026-01-01", resume_at="2099-01-02 03:04:05.678901+00")
    queue.policy("unknown", paused_at="2026-01-01")
    queue.publish("known")
    queue.publish("unknown")

    _, left = queue.claim_with_next_due("known", "unknown")

    assert left.held_back.keys() == {"topic known", "topic unknown"}
    assert left.held_back["topic unknown"] is None
    assert queue.value("SELECT %s::timestamptz = '2099-01-02 03:04:05.678901+00'", [left.held_back["topic known"]])


def test_a_claim_that_finds_all_that_it_may_take_holds_nothing_back(queue: Queue) -> None:
    queue.policy(max_concurrency=5, channel_concurrency=5)
    queue.publish_many(2)
    queue.publish_many(2, channel="c")

    claimed, left = queue.claim_with_next_due()

    assert (len(claimed), left.held_back) == (4, None)


def test_what_one_claim_held_back_another_one_of_the_transaction_does_not_say(queue: Queue) -> None:
    queue.policy("full", max_concurrency=1)
    queue.publish_many(2, "full")
    queue.claim("full", limit=1)

    with queue.conn.transaction():
        _, first = queue.claim_with_next_due("full")
        _, second = queue.claim_with_next_due("t")

    assert (first.held_back, second.held_back) == ({"topic full": None}, None)


def test_after_nothing_was_claimed_it_says_when_the_next_message_is_due(queue: Queue) -> None:
    queue.stop_clock("2026-01-01")
    queue.publish(wait="61.5 s")

    assert queue.claim_with_next_due() == ([], (*[None] * 18, 61.5))
    assert queue.claim_with_next_due(look_ahead=False) == ([], (*[None] * 19,))


def test_after_something_was_claimed_it_does_not_look_ahead(queue: Queue) -> None:
    queue.publish()
    queue.publish(wait="1 hour")

    claimed, left = queue.claim_with_next_due()

    assert (len(claimed), left.next_due_s) == (1, None)


def test_it_looks_beyond_what_was_held_back(queue: Queue) -> None:
    queue.stop_clock("2026-01-01")
    queue.policy(max_concurrency=1)
    queue.publish_many(2)
    queue.publish("u", wait="1 minute")
    queue.claim(limit=1)

    claimed, left = queue.claim_with_next_due("t", "u")

    assert (claimed, left.next_due_s) == ([], 60)
    assert queue.call("next_due", ["t", "u"]) == timedelta(0)
