"""messages.claim_with_next_due: one claim over several topics, and when to claim again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.sql.queue import Background, Queue, Row


def test_the_last_row_is_no_message_even_if_nothing_is_held_back_and_nothing_waits(queue: Queue) -> None:
    claimed, left = queue.claim_with_next_due()

    assert claimed == []
    assert set(left) == {None}


def test_messages_claim_returns_the_same_rows_without_the_last_one(queue: Queue) -> None:
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
def test_the_last_row_reports_messages_that_any_limit_held_back(
    queue: Queue, settings: dict[str, Any], columns: dict[str, Any], part: str
) -> None:
    queue.policy(**settings)
    queue.publish_many(3, **columns)
    queue.claim(limit=1)

    claimed, left = queue.claim_with_next_due()

    assert (claimed, left.held_back.keys()) == ([], {part})


def test_the_last_row_has_the_time_of_the_next_claim_if_that_is_known(queue: Queue) -> None:
    queue.policy("known", paused_at="2026-01-01", resume_at="2099-01-02 03:04:05.678901+00")
    queue.policy("unknown", paused_at="2026-01-01")
    queue.publish("known")
    queue.publish("unknown")

    _, left = queue.claim_with_next_due("known", "unknown")

    assert left.held_back.keys() == {"topic known", "topic unknown"}
    assert left.held_back["topic unknown"] is None
    assert queue.value("SELECT %s::timestamptz = '2099-01-02 03:04:05.678901+00'", [left.held_back["topic known"]])


def test_a_claim_that_finds_all_its_messages_holds_nothing_back(queue: Queue) -> None:
    queue.policy(max_concurrency=5, channel_concurrency=5)
    queue.publish_many(2)
    queue.publish_many(2, channel="c")

    claimed, left = queue.claim_with_next_due()

    assert (len(claimed), left.held_back) == (4, None)


def test_messages_that_one_claim_held_back_are_not_reported_by_another_of_the_same_transaction(queue: Queue) -> None:
    queue.policy("full", max_concurrency=1)
    queue.publish_many(2, "full")
    queue.claim("full", limit=1)

    with queue.conn.transaction():
        _, first = queue.claim_with_next_due("full")
        _, second = queue.claim_with_next_due("t")

    assert (first.held_back, second.held_back) == ({"topic full": None}, None)


def test_after_an_empty_claim_it_has_the_time_when_the_next_message_is_due(queue: Queue) -> None:
    queue.stop_clock("2026-01-01")
    queue.publish(wait="61.5 s")

    assert queue.claim_with_next_due() == ([], (*[None] * 19, 61.5))
    assert queue.claim_with_next_due(look_ahead=False) == ([], (*[None] * 20,))


def test_after_a_claim_with_messages_it_has_no_next_due(queue: Queue) -> None:
    queue.publish()
    queue.publish(wait="1 hour")

    claimed, left = queue.claim_with_next_due()

    assert (len(claimed), left.next_due_s) == (1, None)


def test_next_due_ignores_messages_that_were_held_back(queue: Queue) -> None:
    queue.stop_clock("2026-01-01")
    queue.policy(max_concurrency=1)
    queue.publish_many(2)
    queue.publish("u", wait="1 minute")
    queue.claim(limit=1)

    claimed, left = queue.claim_with_next_due("t", "u")

    assert (claimed, left.next_due_s) == ([], 60)
    assert queue.call("next_due", ["t", "u"]) == timedelta(0)


# Which claims must survive a crash of the server.


def is_durable(queue: Queue) -> bool:
    """Claim all messages without waiting for the disk; return whether the claim waits nevertheless."""
    with queue.conn.transaction():
        queue.conn.execute("SET LOCAL synchronous_commit = off")
        assert queue.claim()
        setting: str = queue.value("SHOW synchronous_commit")
    return setting != "off"


@pytest.mark.parametrize(
    "settings", [{"max_concurrency": 5}, {"dequeue_rate": 5}, {"channel_concurrency": 1}, {"ordered": True}]
)
def test_claims_of_a_topic_with_a_limit_are_durable(queue: Queue, settings: dict[str, Any]) -> None:
    queue.policy(max_attempts=0, **settings)
    queue.publish()

    assert is_durable(queue)


def test_claims_of_a_topic_with_a_limited_channel_are_durable(queue: Queue) -> None:
    queue.policy(max_attempts=0)
    queue.conn.execute("INSERT INTO messages.channel (topic, channel, concurrency) VALUES ('t', 'c', 1)")
    queue.publish(channel="c")

    assert is_durable(queue)


@pytest.mark.parametrize(
    ("of_topic", "of_message", "expected"),
    [(1, None, True), (2, None, False), (0, None, False), (2, 1, True), (1, 2, False), (1, 0, False)],
)
def test_claims_of_the_last_attempt_of_a_message_are_durable(
    queue: Queue, of_topic: int, of_message: int | None, expected: bool
) -> None:
    queue.policy(max_attempts=of_topic)
    queue.publish(max_attempts=of_message)

    assert is_durable(queue) is expected


def test_claims_in_which_one_of_many_messages_has_its_last_attempt_are_durable(queue: Queue) -> None:
    queue.policy(max_attempts=3)
    queue.publish_many(5)
    assert not is_durable(queue)
    queue.publish_many(5)

    queue.conn.execute("UPDATE messages.message SET attempts = 2 WHERE id = (SELECT max(id) FROM messages.message)")

    assert is_durable(queue)


# messages.pick_messages: messages with a channel and messages without share a claim.

PICK = """
    SELECT cardinality(p.rows)
    FROM messages.pick_messages(messages.claim_policy('t', messages.now()), messages.now(), %s, NULL, 100, %s) AS p
"""


def pick(queue: Queue, claim_id: int, most_bytes: int = 1_000_000) -> int:
    return int(queue.value(PICK, [claim_id, most_bytes]))


@pytest.mark.parametrize("claim_id", [1, 2])
def test_the_bytes_count_for_both_kinds_together(queue: Queue, claim_id: int) -> None:
    for channel in (None, "c"):
        queue.publish_many(3, body=b"x" * 100, channel=channel)

    assert pick(queue, claim_id, most_bytes=450) == 5


@pytest.mark.parametrize(("claim_id", "found"), [(63, 0), (64, 1), (65, 0), (128, 1), (6400, 1)])
def test_every_64th_claim_reads_from_the_left_edge_so_that_no_mark_hides_a_message_for_ever(
    queue: Queue, claim_id: int, found: int
) -> None:
    queue.conn.execute("INSERT INTO messages.low_water (topic, priority, at) VALUES ('t', 5, '2026-01-02')")
    queue.publish(available_at="2026-01-01")

    assert pick(queue, claim_id) == found


@pytest.mark.parametrize(("ago", "found"), [("50 s", 0), ("61 s", 1)])
def test_while_the_marks_are_raised_it_does_not(queue: Queue, ago: str, found: int) -> None:
    queue.conn.execute("INSERT INTO messages.low_water (topic, priority, at) VALUES ('t', 5, '2026-01-02')")
    queue.conn.execute("UPDATE messages.low_water_mark SET left_edge_at = clock_timestamp() - %s::interval", [ago])
    queue.publish(available_at="2026-01-01")

    assert pick(queue, 64) == found


# The message that next_topic saw may be gone before the claim looks at the topic.


@pytest.fixture
def overtaken(queue: Queue, other: Queue, background: Background) -> Callable[..., tuple[list[Row], Row]]:
    """Return what a claim of topics returns after another session took the only message of `a`.

    It took it when the claim had chosen that topic.
    """

    def claim(*topics: str, **named: Any) -> tuple[list[Row], Row]:
        queue.let_claim_ids(lambda claim_id: claim_id % 64 != 0)
        with other.conn.transaction():
            # The claim reads policies, and so waits, after it has chosen the topic.
            other.conn.execute("LOCK TABLE messages.topic")
            claiming = background.start_blocked(queue, queue.claim_with_next_due, *topics, **named)
            other.claim_one("a")
        result: tuple[list[Row], Row] = claiming.result(timeout=60)
        return result

    return claim


@pytest.mark.parametrize("topics", [("a", "b"), ("a",)], ids=str)
def test_a_claim_finds_nothing_where_another_one_takes_the_last_message_first(
    queue: Queue, overtaken: Callable[..., tuple[list[Row], Row]], topics: tuple[str, ...]
) -> None:
    queue.publish("a")

    assert overtaken(*topics) == ([], (*[None] * 20,))


@pytest.mark.parametrize("after", [None, "c"])
def test_a_claim_goes_on_with_the_other_topics_where_another_one_takes_the_last_message_first(
    queue: Queue, overtaken: Callable[..., tuple[list[Row], Row]], after: str | None
) -> None:
    queue.publish("a")
    left = [queue.publish("b"), queue.publish("c")]

    claimed, _ = overtaken("a", "b", "c", after_topic=after)

    assert sorted(row.id for row in claimed) == left


def test_slots_that_are_only_for_waiting_are_not_held_back_by_a_limit(queue: Queue) -> None:
    queue.policy(max_concurrency=5)
    queue.publish()

    claimed, left = queue.claim_with_next_due(slots=[1], prefetch=[1])

    assert (claimed, left.held_back) == ([], None)
