"""messages.pick_priority: the next ready rows of one topic and priority without a channel. (What a claim as a whole guarantees: test_claim.py.)"""

from __future__ import annotations

from tests.sql.queue import Queue, Row

PICK = """
    SELECT p.bytes, p.over, p.expired,
           (SELECT array_agg(m.id ORDER BY r.nth) FROM unnest(p.rows) WITH ORDINALITY AS r (ctid, nth) JOIN messages.message AS m ON m.ctid = r.ctid) AS ids
    FROM messages.pick_priority(messages.claim_policy('t', messages.now()), messages.now(), 5::smallint, %s, %s, %s) AS p
"""


def pick(queue: Queue, low: str = "-infinity", limit: int = 10, most_bytes: int = 1_000_000) -> Row:
    return queue.row(PICK, [low, limit, most_bytes])


def test_it_picks_from_one_topic_and_priority_without_a_channel(queue: Queue) -> None:
    wanted = queue.publish()
    queue.publish(priority=4)
    queue.publish("u")
    queue.publish(channel="c")

    assert pick(queue).ids == [wanted]


def test_the_longest_available_go_first(queue: Queue) -> None:
    late, early = queue.publish(wait="-1 s"), queue.publish(wait="-2 s")

    assert pick(queue).ids == [early, late]
    assert pick(queue, limit=1).ids == [early]


def test_it_reads_nothing_below_the_given_position(queue: Queue) -> None:
    queue.publish(available_at="2026-01-01")
    wanted = queue.publish(available_at="2026-01-02")

    assert pick(queue, low="2026-01-02").ids == [wanted]


def test_it_ends_with_the_row_that_reaches_the_byte_limit(queue: Queue) -> None:
    first, second, _ = (queue.publish(body=b"x" * 100) for _ in range(3))

    picked = pick(queue, most_bytes=150)

    assert (picked.ids, picked.bytes) == ([first, second], 200)


def test_delayed_and_locked_rows_are_left_alone(queue: Queue, other: Queue) -> None:
    queue.publish(wait="1 hour")
    queue.publish(wait="-2 s")
    queue.claim(limit=1)
    queue.publish()
    with other.conn.transaction():
        other.claim()

        assert pick(queue).ids is None


def test_rows_that_must_end_are_separate_from_rows_that_can_run(queue: Queue) -> None:
    used_up = queue.publish(max_attempts=3)
    queue.conn.execute("UPDATE messages.message SET attempts = 3")
    expired = queue.publish(expires_at="2026-01-01")
    good = queue.publish(expires_at="2900-01-01")

    picked = pick(queue)

    assert (picked.ids, picked.over, picked.expired) == ([good], [used_up], [expired])


def test_a_message_that_is_both_used_up_and_expired_is_expired(queue: Queue) -> None:
    published = queue.publish(max_attempts=1, expires_at="2026-01-01")
    queue.conn.execute("UPDATE messages.message SET attempts = 1")

    assert (pick(queue).over, pick(queue).expired) == (None, [published])
