"""The slots of channels."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.sql.queue import Queue, Row

# messages.channel_slots: how many messages a claim may take of each channel.

ROOMS = """
    SELECT r.slots, r.held, extract(epoch FROM r.until - messages.now())::float AS until_in
    FROM messages.channel_slots(messages.claim_policy('t', messages.now()), %s::text[], messages.now(), 10) AS r
"""


@pytest.fixture(autouse=True)
def stopped_clock(queue: Queue) -> None:
    queue.later("0")


def counted(queue: Queue, *channels: str) -> Row:
    return queue.row(ROOMS, [list(channels)])


def slots(queue: Queue, *channels: str) -> list[int]:
    return list(counted(queue, *channels).slots)


def override(queue: Queue, channel: str, **columns: Any) -> None:
    names, values = ", ".join(columns), ", ".join(["%s"] * len(columns))
    queue.conn.execute(
        f"INSERT INTO messages.channel (topic, channel, {names}) VALUES ('t', %s, {values})".encode(),
        [channel, *columns.values()],
    )


@pytest.mark.parametrize(
    ("topic", "channel", "room"), [(2, 5, 5), (5, 2, 2), (2, 0, 10), (2, None, 2), (None, 4, 4), (None, None, 10)]
)
def test_the_limit_of_the_channel_wins_and_zero_lifts_it(
    queue: Queue, topic: int | None, channel: int | None, room: int
) -> None:
    queue.policy(channel_concurrency=topic)
    override(queue, "a", concurrency=channel)

    assert slots(queue, "a") == [room]


def test_with_a_minimum_interval_a_channel_has_one_slot_and_then_none_until_it_has_passed(queue: Queue) -> None:
    queue.policy(channel_min_interval="10 s")
    queue.publish_many(3, channel="a")
    assert slots(queue, "a") == [1]

    assert len(queue.claim()) == 1

    assert (slots(queue, "a"), counted(queue, "a").until_in) == ([0], 10)
    queue.later("9.999999 s")
    assert slots(queue, "a") == [0]
    queue.later("0.000001 s")
    assert slots(queue, "a") == [1]


def test_a_channel_that_another_claim_counts_has_no_slot_and_is_worth_another_claim_at_once(
    queue: Queue, other: Queue
) -> None:
    queue.policy(channel_concurrency=5)
    with queue.conn.transaction():
        slots(queue, "a", "b")
    with other.conn.transaction():
        slots(other, "a")

        row = counted(queue, "a", "b")

    assert (row.slots, row.held, row.until_in) == ([0, 5], True, 0)


def test_a_channel_that_another_claim_has_just_used_counts_the_messages_of_that_claim(
    queue: Queue, other: Queue
) -> None:
    """The second claim waits for the lock, and reads with a snapshot that it takes afterwards."""
    queue.policy(channel_concurrency=2)
    queue.publish_many(4, channel="a")
    queue.claim(limit=1)

    assert len(other.claim()) == 1
    assert slots(queue, "a") == [0]


# messages.unheld_channels: which (channel, priority) pairs are not held, as far as can be seen without a lock.

UNHELD = """
    SELECT u.channels, u.priorities, extract(epoch FROM u.until - messages.now())::float AS until_in
    FROM messages.unheld_channels(
      messages.claim_policy('t', messages.now()), %s::text[], %s::smallint[], messages.now()
    ) AS u
"""
SLOTS = (
    "SELECT s.slots FROM messages.channel_slots(messages.claim_policy('t', messages.now()), %s::text[], "
    "messages.now(), 10) AS s"
)
RATE = """
    INSERT INTO messages.rate (kind, topic, channel, free_at, blocked_until, blocked_by)
    VALUES ('channel', 't', %s, messages.now() + %s::interval, messages.now() + %s::interval, %s)
"""

HOLD = {
    "runs": """
        INSERT INTO messages.message (topic, channel, payload, claim_id, locked_by, locked_at, lock_expires_at)
        SELECT 't', 'c' || n, '1', 1, 'w', now(), now() + interval '1 hour' FROM generate_series(1, %(channels)s) AS n
    """,
    "backs off": """
        WITH first AS (
          INSERT INTO messages.message (topic, channel, payload)
          SELECT 't', 'c' || n, '1' FROM generate_series(1, %(channels)s) AS n
          RETURNING id, channel)
        INSERT INTO messages.rate (kind, topic, channel, blocked_until, blocked_by)
        SELECT 'channel', 't', channel, clock_timestamp() + interval '1 hour', id FROM first
    """,
    "interval": """
        INSERT INTO messages.rate (kind, topic, channel, free_at)
        SELECT 'channel', 't', 'c' || n, clock_timestamp() + interval '1 min' FROM generate_series(1, %(channels)s) AS n
    """,
}


def look(queue: Queue, *channels: str) -> Row:
    return queue.row(UNHELD, [list(channels), [5] * len(channels)])


def unheld(queue: Queue, *channels: str) -> list[str]:
    return look(queue, *channels).channels or []


def run_in(queue: Queue, channel: str, count: int = 1) -> None:
    """Let this many messages of a channel run."""
    published = queue.publish_many(count, channel=channel)
    queue.conn.execute(
        "UPDATE messages.message SET claim_id = 1, locked_by = 'w', locked_at = now(), lock_expires_at = now() "
        "WHERE id = ANY (%s)",
        [published],
    )


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 12))])
def test_it_leaves_out_no_channel_that_has_a_slot(queue: Queue, seed: int) -> None:
    lot = Random(seed)
    settings: dict[str, Any] = {"ordered": lot.random() < 0.5, "channel_concurrency": lot.choice([None, 0, 1, 3])}
    queue.policy(**settings, channel_min_interval=lot.choice([None, "0", "5 s", "1 hour"]))
    channels = [f"c{n}" for n in range(60)]
    for channel in channels:
        first = queue.publish(channel=channel)
        if lot.random() < 0.5:
            run_in(queue, channel, lot.randint(1, 4))
        if lot.random() < 0.5:
            times = [lot.choice([None, "-1 s", "3 s", "1 min"]) for _ in range(2)]
            queue.conn.execute(RATE, [channel, times[0] or "-1 day", times[1], first + lot.choice([0, 0, 1])])
        if lot.random() < 0.1:
            queue.conn.execute(
                "INSERT INTO messages.channel (topic, channel, concurrency, min_interval) VALUES ('t', %s, %s, %s)",
                [channel, lot.choice([None, 0, 5]), lot.choice([None, "0"])],
            )

    left = unheld(queue, *channels)

    slots = dict(zip(channels, queue.value(SLOTS, [channels]), strict=True))
    assert {channel for channel, free in slots.items() if free} <= set(left)
    own = {row.channel for row in queue.rows("SELECT channel FROM messages.channel")}
    late = {row.channel for row in queue.rows("SELECT channel FROM messages.rate WHERE free_at > messages.now()")}
    assert {channel for channel, free in slots.items() if not free} - own - late <= set(channels) - set(left)


@pytest.mark.parametrize("hold", ["runs", "backs off", "interval"])
def test_it_reads_a_few_pages_for_each_channel_however_many_there_are(own_queue: Queue, hold: str) -> None:
    own_queue.policy(ordered=hold != "interval", channel_min_interval="1 hour" if hold == "interval" else None)
    own_queue.conn.execute(HOLD[hold], {"channels": 20_000})
    asked = (
        "ARRAY(SELECT 'c' || n FROM generate_series(1, 1000) AS n), ARRAY(SELECT 5 "
        "FROM generate_series(1, 1000))::smallint[]"
    )

    read = (
        f"SELECT (messages.unheld_channels(messages.claim_policy('t', messages.now()), {asked}, "
        "messages.now())).channels"
    )

    assert own_queue.value(read) is None
    assert own_queue.buffers(read) < 1000 * 14
