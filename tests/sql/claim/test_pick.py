"""How a claim picks messages with and without channels."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from psycopg import sql

from tests.server.postgres import Database
from tests.sql.queue import Queue, Row

# messages.pick_with_channel: the messages of one topic with a channel. (What a claim as a whole guarantees:
# test_claim.py.)

PICK = """
    SELECT m.id, m.channel
    FROM messages.pick_with_channel(
      messages.claim_policy('t', messages.now()), messages.now(), %s, %s, 1000000, true
    ) AS p
    CROSS JOIN unnest(p.rows) WITH ORDINALITY AS r (ctid, nth)
    JOIN messages.message AS m ON m.ctid = r.ctid
    ORDER BY r.nth
"""


def pick(queue: Queue, after: str | None = None, limit: int = 10) -> list[Any]:
    return queue.rows(PICK, [after, limit])


@pytest.mark.parametrize(
    ("after", "expected"), [(None, "abc"), ("a", "bca"), ("b", "cab"), ("c", "abc"), ("aa", "bca"), ("z", "abc")]
)
@pytest.mark.parametrize("settings", [{}, {"channel_concurrency": 1}])
def test_it_visits_each_channel_once_after_the_given_one(
    queue: Queue, after: str | None, expected: str, settings: dict[str, Any]
) -> None:
    if settings:
        queue.policy(**settings)
    for channel in "cab":
        queue.publish(channel=channel)

    assert "".join(row.channel for row in pick(queue, after)) == expected


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_a_small_claim_continues_until_it_is_full_however_many_channels_are_at_their_limits(
    queue: Queue, limit: int
) -> None:
    queue.policy(channel_concurrency=1)
    queue.publish_many(200, channel=sql.SQL("'full' || n % 100"))
    assert len(queue.claim(limit=200)) == 100
    for n in range(10):
        queue.publish(channel=f"z{n}")

    assert [row.channel for row in pick(queue, limit=limit)] == [f"z{n}" for n in range(limit)]


def test_a_channel_gives_at_most_twice_the_even_share_in_one_round(queue: Queue) -> None:
    queue.publish_many(100, channel="flood")
    for n in range(9):
        queue.publish_many(100, channel=f"c{n}")

    assert set(Counter(row.channel for row in pick(queue, limit=50)).values()) == {5}
    queue.conn.execute("DELETE FROM messages.message WHERE channel <> 'flood' AND id % 100 > 1")
    assert Counter(row.channel for row in pick(queue, limit=50))["flood"] == 10


def test_a_channel_with_few_messages_waits_for_one_round_at_most(queue: Queue) -> None:
    for n in range(50):
        queue.publish_many(20, channel=f"flood{n:02}")
    queue.publish(channel="quiet")

    after, claimed = "flood49", list[Any]()
    for _ in range(6):
        claimed += queue.claim(limit=10, after_channels={"t": after})
        after = claimed[-1].channel

    assert "quiet" in [c.channel for c in claimed[:51]]


def test_a_channels_slots_count_for_all_its_priorities_together(queue: Queue) -> None:
    queue.policy(channel_concurrency=2)
    low, high = queue.publish_many(3, channel="a", priority=9), queue.publish(channel="a", priority=0)

    assert [c.id for c in queue.claim()] == [high, low[0]]


def test_an_ordered_channel_gives_its_messages_one_by_one_in_their_order(queue: Queue) -> None:
    queue.policy(ordered=True)
    published = queue.publish_many(3, channel="a", available_at="2026-01-01")
    queue.publish(channel="b")

    worked = []
    while claimed := queue.claim():
        worked += [c.id for c in claimed if c.channel == "a"]
        assert sum(c.channel == "a" for c in claimed) == 1
        assert queue.claim() == []
        queue.settle("complete", claimed)

    assert worked == published


def test_in_an_ordered_channel_a_locked_first_message_is_not_passed_by_a_later_priority(
    queue: Queue, other: Queue
) -> None:
    queue.policy(ordered=True)
    first, second = queue.publish(channel="a", priority=0), queue.publish(channel="a", priority=9)
    with other.conn.transaction():
        other.row("SELECT FROM messages.message WHERE id = %s FOR UPDATE", [first])

        assert queue.claim() == []

    assert [c.id for c in queue.claim()] == [first]
    assert queue.message(second).claim_id is None


def test_a_slot_that_an_expired_message_frees_is_worth_another_claim_at_once(queue: Queue) -> None:
    queue.policy(ordered=True)
    queue.publish(channel="busy")
    queue.claim()
    queue.publish(channel="busy")
    queue.publish(channel="a", expires_at="2026-01-01")
    second = queue.publish(channel="a")

    claimed, left = queue.claim_with_next_due()

    assert (claimed, left.next_due_s) == ([], 0)
    assert [c.id for c in queue.claim()] == [second]


def fill_all(queue: Queue, channels: int) -> None:
    """Let one message of each channel run, and another one wait behind it."""
    for _ in range(2):
        queue.conn.execute(
            "INSERT INTO messages.message (topic, channel, payload) SELECT 't', 'c' || n, '1' "
            "FROM generate_series(10001, 10000 + %s) AS n",
            [channels],
        )
    while queue.claim(limit=10_000):
        pass


def claims_until_found(queue: Queue) -> int:
    """Claim until a message is found, and return the number of claims."""
    for count in range(1, 20):
        if queue.claim(limit=10):
            return count
    raise AssertionError("it was never found")


def test_with_thousands_of_full_channels_a_claim_checks_some_and_the_next_one_continues(own_queue: Queue) -> None:
    own_queue.policy(channel_concurrency=1)
    fill_all(own_queue, 5000)

    claims = [own_queue.claim_with_next_due(limit=10) for _ in range(7)]

    # After a whole round that found nothing the next claim can wait.
    assert [claimed for claimed, _ in claims] == [[]] * 7
    assert [left.next_due_s is None or left.next_due_s > 0 for _, left in claims] == [False] * 6 + [True]
    for free in ("c15000", "c10001", "c12500"):
        own_queue.call("cancel", [own_queue.value("SELECT min(id) FROM messages.message WHERE channel = %s", [free])])
        # The rest of this round and, if it was passed already, the next one.
        assert claims_until_found(own_queue) <= 6


def test_an_unfinished_round_hides_nothing(own_queue: Queue) -> None:
    """It continues after a channel that has a new message since, and finds nothing: the next round has to come soon."""
    own_queue.policy(channel_concurrency=1)
    fill_all(own_queue, 5000)
    assert own_queue.claim(limit=10) == []
    own_queue.conn.execute("DELETE FROM messages.message WHERE claim_id IS NULL")
    published = own_queue.publish(channel="c10000")

    found, left = own_queue.claim_with_next_due(limit=10)

    assert found or left.next_due_s <= 1
    assert [c.id for c in found or own_queue.claim(limit=10)] == [published]


HELD = {
    "delayed": "UPDATE messages.message SET available_at = now() + interval '1 hour' WHERE channel <> 'flood'",
    "running": """
        INSERT INTO messages.message (topic, channel, payload, claim_id, locked_by, locked_at, lock_expires_at)
        SELECT 't', m.channel, '1', 1, 'w', now(), now() + interval '1 hour' FROM messages.message AS m
    """,
    "backs off": """
        INSERT INTO messages.rate (kind, topic, channel, blocked_until, blocked_by)
        SELECT 'channel', 't', m.channel, clock_timestamp() + interval '1 hour', m.id FROM messages.message AS m
    """,
    "interval": """
        INSERT INTO messages.rate (kind, topic, channel, free_at)
        SELECT 'channel', 't', m.channel, clock_timestamp() + interval '1 hour' FROM messages.message AS m
    """,
}


def test_a_round_that_began_under_a_limit_does_not_keep_it(own_queue: Queue) -> None:
    """A claim that continues the round asks what holds channels only where the policy of now limits them."""
    own_queue.policy(ordered=True)
    own_queue.publish_many(3000, channel=sql.SQL("'c' || n"))
    own_queue.conn.execute(HELD["backs off"])
    assert own_queue.claim(limit=10) == []

    own_queue.policy(ordered=False)

    assert len(own_queue.claim(limit=10)) == 10


@pytest.mark.parametrize("hold", HELD)
def test_a_claim_reads_a_bounded_number_of_pages_however_many_channels_are_held(own_queue: Queue, hold: str) -> None:
    own_queue.policy(
        ordered=hold in {"running", "backs off"}, channel_min_interval="1 day" if hold == "interval" else None
    )
    own_queue.publish_many(20_000, channel=sql.SQL("'c' || n"))
    if hold == "delayed":
        own_queue.publish_many(5000, channel="flood")
    own_queue.conn.execute(HELD[hold].encode())

    assert own_queue.buffers("SELECT * FROM messages.claim('w', ARRAY['t'], 10)") < 14_000


def claimable(queue: Queue, policy: dict[str, Any]) -> dict[str, list[int]]:
    """Return the ids that claims may take of each channel, in their order.

    This is the slow reference, which reads everything.
    """
    found: dict[str, list[int]] = {}
    for row in queue.rows(CHANNELS):
        room = 1 if policy["ordered"] else policy["channel_concurrency"] or 1000
        room = min(room, 1) - row.running if policy["ordered"] else room - row.running
        if policy["channel_min_interval"]:
            room = min(room, 1)
        found[row.channel] = row.due[: max(0, room)] if not row.is_blocked else []
    return {channel: ids for channel, ids in found.items() if ids}


CHANNELS = """
    SELECT
      m.channel, count(*) FILTER (WHERE m.claim_id IS NOT NULL) AS running,
      coalesce(
        array_agg(m.id ORDER BY m.priority, m.available_at, m.id) FILTER (
          WHERE m.claim_id IS NULL AND m.available_at <= messages.now()),
        '{}') AS due,
      coalesce(
        bool_or(r.free_at > messages.now() OR (r.blocked_until > messages.now() AND r.blocked_by = m.id)), false
      ) AS is_blocked
    FROM messages.message AS m
    LEFT JOIN messages.rate AS r ON r.kind = 'channel' AND r.topic = m.topic AND r.channel = m.channel
    GROUP BY m.channel
"""


@pytest.mark.parametrize(
    ("seed", "channels"),
    [
        *((seed, 150) for seed in range(6)),
        *(pytest.param(seed, 1200, marks=pytest.mark.long) for seed in range(6)),
    ],
)
def test_claims_take_exactly_what_a_slow_reference_permits(queue: Queue, seed: int, channels: int) -> None:
    lot = Random(seed)
    queue.later("0")
    policy: dict[str, Any] = {
        "ordered": seed % 3 == 0,
        "channel_concurrency": [None, 1, 3][seed % 3],
        "channel_min_interval": "1 hour" if seed == 4 else None,
    }
    queue.policy(**policy)
    for wait, share in (("-1 s", 1), ("-2 s", 0.7), ("1 hour", 0.3)):
        queue.publish_many(int(channels * share), channel=sql.SQL("'c' || lpad(n::text, 5, '0')"), wait=wait)
    hold_at_random(queue, lot)
    permitted = claimable(queue, policy)

    taken: dict[str, list[int]] = {}
    claims = [queue.claim(limit=lot.choice([1, 10, 50])) for _ in range(2 * channels // 20 + 20)]
    while claims[-1]:
        claims.append(queue.claim(limit=1000))
    for message in (message for claim in claims for message in claim):
        taken.setdefault(message.channel, []).append(message.id)

    assert taken == permitted


def hold_at_random(queue: Queue, lot: Random) -> None:
    """Let the first messages of most channels run or back off, and keep some channels for an interval."""
    channels = queue.rows(
        "SELECT channel, array_agg(id ORDER BY available_at, id) AS ids FROM messages.message "
        "GROUP BY channel ORDER BY channel"
    )
    with queue.conn.pipeline():
        for row in channels:
            hold(queue, row, lot)


def hold(queue: Queue, row: Row, lot: Random) -> None:
    """Let the first messages of a channel run or back off, keep it for an interval, or leave it free."""
    kind = lot.choice(["runs", "runs", "runs", "backs off", "waits", "free"])
    if kind == "runs":
        queue.conn.execute(
            "UPDATE messages.message SET claim_id = 1, locked_by = 'w', locked_at = now(), lock_expires_at = "
            "now() WHERE id = ANY (%s)",
            [row.ids[: lot.randint(1, 2)]],
        )
    if kind in {"backs off", "waits"}:
        queue.conn.execute(
            """
            INSERT INTO messages.rate (kind, topic, channel, free_at, blocked_until, blocked_by)
            VALUES ('channel', 't', %s, messages.now() + %s, messages.now() + interval '5 min', %s)
            """,
            [row.channel, timedelta(minutes=-1), row.ids[0] if kind == "backs off" else 0],
        )


def test_a_claim_of_one_message_skips_rows_that_another_transaction_holds_in_the_same_channel(
    queue: Queue, database: Database
) -> None:
    held, free = queue.publish(channel="a", priority=0), queue.publish(channel="a", priority=1)
    other = database.connect()
    with other.transaction():
        other.execute("SELECT FROM messages.message WHERE id = %s FOR UPDATE", [held])

        assert [c.id for c in queue.claim(limit=1)] == [free]


def test_ten_thousand_limited_channels_fit_into_one_claim(own_queue: Queue) -> None:
    own_queue.policy(channel_concurrency=1)
    own_queue.conn.execute(
        "INSERT INTO messages.message (topic, channel, payload) SELECT 't', 'c' || n % 10000, '1' "
        "FROM generate_series(1, 20000) AS n"
    )

    claimed = own_queue.claim(limit=10_000)

    assert len({c.channel for c in claimed}) == len(claimed) == 10_000
    assert own_queue.value("SHOW max_locks_per_transaction") == "64"


# messages.pick_without_channel: the next ready rows of one topic without a channel, over its priorities.


def mark(queue: Queue, priority: int, at: str) -> None:
    queue.conn.execute("INSERT INTO messages.low_water (topic, priority, at) VALUES ('t', %s, %s)", [priority, at])


def test_a_priority_with_a_mark_hides_none_without(queue: Queue) -> None:
    mark(queue, 5, "2026-01-01")
    published = [queue.publish(priority=p) for p in (0, 4, 5, 6, 9)]

    assert [c.id for c in queue.claim()] == published


# messages.due_channels: the (channel, priority) pairs of one topic that have a due message.

DUE = "SELECT channel, priority FROM messages.due_channels('t', %s, %s, messages.now(), %s, '-infinity', 2147483647)"


def due(queue: Queue, after: str = "", upto: str | None = None, limit: int = 100) -> list[Any]:
    return [tuple(row) for row in queue.rows(DUE, [after, upto, limit])]


def test_channels_are_ordered_by_their_bytes_whatever_the_collation_of_the_server(queue: Queue) -> None:
    for channel in ("é", "Z", "a", "10", "9"):
        queue.publish(channel=channel)

    assert [channel for channel, _ in due(queue)] == ["10", "9", "Z", "a", "é"]


def test_it_never_reads_the_messages_of_a_channel_one_by_one(own_queue: Queue) -> None:
    own_queue.publish_many(20_000, channel="a", wait="1 hour")
    own_queue.publish_many(20_000, channel="b")

    assert (
        own_queue.buffers("SELECT messages.due_channels('t', '', NULL, messages.now(), 100, '-infinity', 2147483647)")
        < 60
    )
    assert due(own_queue) == [("b", 5)]


def test_it_reads_no_further_than_its_limit(own_queue: Queue) -> None:
    own_queue.conn.execute(
        "INSERT INTO messages.message (topic, channel, payload) SELECT 't', 'c' || n, '1' "
        "FROM generate_series(1, 20000) AS n"
    )

    assert (
        own_queue.buffers("SELECT messages.due_channels('t', '', NULL, messages.now(), 10, '-infinity', 2147483647)")
        < 120
    )


EXAMINED = """
    SELECT channel, priority, is_due, nth
    FROM messages.due_channels('t', %s, %s, messages.now(), %s, messages.now() - interval '1 day', %s, %s)
"""
# A slow reference: all pairs behind a channel, up to another one, and whether their first message is due.
PAIRS = """
    SELECT m.channel, m.priority, min(m.available_at) <= messages.now() AS is_due
    FROM messages.message AS m
    WHERE m.topic = 't' AND m.claim_id IS NULL AND m.channel > %s AND (%s::text IS NULL OR m.channel <= %s)
      AND m.available_at >= messages.now() - interval '1 day'
    GROUP BY m.channel, m.priority
    ORDER BY m.channel, m.priority
"""


def publish_at_random(queue: Queue, lot: Random) -> None:
    """Publish to some channels with one message or many of each priority, due, delayed and below the mark."""
    for n in range(lot.choice([3, 150, 400])):
        for priority in lot.sample(range(10), lot.choice([1, 1, 1, 2, 10])):
            wait = lot.choice(["-1 s", "1 hour", "-2 days"])
            queue.publish_many(lot.choice([1, 1, 1, 2, 70]), channel=f"c{n:03}", priority=priority, wait=wait)


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 8))])
def test_it_visits_what_a_slow_reference_visits(queue: Queue, seed: int) -> None:
    lot = Random(seed)
    with queue.conn.transaction():
        queue.later("0")
        publish_at_random(queue, lot)

    for _ in range(20):
        after, upto = lot.choice(["", "c000", "c001", "c149x"]), lot.choice([None, "c002", "c100", "c399"])
        limit, looks = lot.choice([1, 7, 100, 10_000]), lot.choice([1, 40, 300, 10_000])
        visited = [tuple(row) for row in queue.rows(EXAMINED, [after, upto, limit, looks, lot.choice([2, 8])])]
        pairs = [(*row, nth) for nth, row in enumerate(queue.rows(PAIRS, [after, upto, upto]), start=1)]

        last = visited[-1][3] if visited else 0
        assert visited == [pair for pair in pairs[:last] if pair[2] or pair[3] >= looks]
        if any(pair[2] for pair in pairs[last:]) and len(visited) < limit:
            # It ended since it had examined enough, and behind a whole channel.
            assert (looks <= last <= looks + 75, pairs[last][0] > pairs[last - 1][0]) == (True, True)


def test_delayed_channels_cost_little_more_than_their_entries(own_queue: Queue) -> None:
    own_queue.publish_many(20_000, channel=sql.SQL("'c' || n"), wait="1 hour")

    walk = "SELECT messages.due_channels('t', '', NULL, messages.now(), 1000, '-infinity', 2000)"

    assert own_queue.buffers(walk) < 1000
