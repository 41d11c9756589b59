"""messages.pick_channel_rows: the next ready rows of some channels, in turns."""

from __future__ import annotations

from typing import Any

from psycopg import sql

from tests.sql.queue import Queue, Row

PICK = """
    SELECT p.bytes, p.over, p.expired,
           (SELECT array_agg(m.id ORDER BY r.nth) FROM unnest(p.rows) WITH ORDINALITY AS r (ctid, nth) JOIN messages.message AS m ON m.ctid = r.ctid) AS ids
    FROM messages.pick_channel_rows(messages.claim_policy('t', messages.now()), messages.now(), %s::text[], %s::smallint[], %s::integer[], %s, %s, '-infinity') AS p
"""


def pick(queue: Queue, places: list[tuple[str, int, int]], limit: int = 100, most_bytes: int = 1_000_000) -> Row:
    channels, priorities, slots = (list(each) for each in zip(*places, strict=True))
    return queue.row(PICK, [channels, priorities, slots, limit, most_bytes])


def names(queue: Queue, picked: Row) -> list[Any]:
    return [queue.message(each).channel for each in picked.ids or []]


def test_the_channels_take_turns_one_message_each(queue: Queue) -> None:
    queue.publish_many(3, channel="a")
    queue.publish_many(2, channel="b")

    picked = pick(queue, [("a", 5, 10), ("b", 5, 10)])

    assert names(queue, picked) == ["a", "b", "a", "b", "a"]


def test_each_channel_gives_at_most_its_slots(queue: Queue) -> None:
    for channel in "abc":
        queue.publish_many(5, channel=channel)

    picked = pick(queue, [("a", 5, 1), ("b", 5, 0), ("c", 5, 3)])

    assert names(queue, picked) == ["a", "c", "c", "c"]


def test_the_slots_apply_to_all_priorities_of_a_channel_together(queue: Queue) -> None:
    low = queue.publish_many(3, channel="a", priority=9)
    high = queue.publish(channel="a", priority=0)

    assert pick(queue, [("a", 0, 2), ("a", 9, 2)]).ids == [high, low[0]]


def test_the_limit_is_shared_fairly(queue: Queue) -> None:
    for channel in "abc":
        queue.publish_many(5, channel=channel)

    assert names(queue, pick(queue, [(c, 5, 5) for c in "abc"], limit=5)) == ["a", "b", "c", "a", "b"]


def test_it_ends_with_the_row_that_reaches_the_byte_limit(queue: Queue) -> None:
    queue.publish_many(5, channel=sql.SQL("n::text"), body=b"x" * 100)

    picked = pick(queue, [(str(n), 5, 1) for n in range(1, 6)], most_bytes=250)

    assert (len(picked.ids), picked.bytes) == (3, 300)


def test_rows_that_must_end_are_separate_from_rows_that_can_run(queue: Queue) -> None:
    used_up = queue.publish(channel="a", max_attempts=3)
    queue.conn.execute("UPDATE messages.message SET attempts = 3")
    expired = queue.publish(channel="a", expires_at="2026-01-01")
    good = queue.publish(channel="a")

    picked = pick(queue, [("a", 5, 10)])

    assert (picked.ids, picked.over, picked.expired) == ([good], [used_up], [expired])


def test_locked_rows_are_skipped(queue: Queue, other: Queue) -> None:
    first, second = queue.publish_many(2, channel="a")
    with other.conn.transaction():
        other.row("SELECT FROM messages.message WHERE id = %s FOR UPDATE", [first])

        assert pick(queue, [("a", 5, 10)]).ids == [second]


def test_in_an_ordered_topic_a_locked_first_row_holds_up_its_channel(queue: Queue, other: Queue) -> None:
    queue.policy(ordered=True)
    first, _ = queue.publish_many(2, channel="a")
    with other.conn.transaction():
        other.row("SELECT FROM messages.message WHERE id = %s FOR UPDATE", [first])

        assert pick(queue, [("a", 5, 1)]).ids is None
