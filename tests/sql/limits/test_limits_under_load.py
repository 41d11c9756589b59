"""Limits hold exactly while many connections claim, settle, publish and tick at once, and no deadlock occurs.

Each snapshot must satisfy the limits: a message runs from the commit of its claim until the commit of its settle.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest

from tests.server.postgres import Database
from tests.sql.queue import Queue

SECONDS = 4.0
TOPICS = ("narrow", "rated", "both", "spaced", "ordered", "free")
RATE, BURST = 300, 30
SPACE_S = 0.05

TOO_MANY_IN_A_TOPIC = """
    SELECT m.topic, count(*) FROM messages.message AS m JOIN messages.topic AS t ON t.topic = m.topic
    WHERE m.claim_id IS NOT NULL AND t.max_concurrency > 0
    GROUP BY m.topic, t.max_concurrency HAVING count(*) > t.max_concurrency
"""
TOO_MANY_IN_A_CHANNEL = """
    SELECT m.topic, m.channel, count(*)
    FROM messages.message AS m
    JOIN messages.topic AS t ON t.topic = m.topic
    LEFT JOIN messages.channel AS c ON c.topic = m.topic AND c.channel = m.channel
    WHERE m.claim_id IS NOT NULL AND m.channel IS NOT NULL
    GROUP BY 1, 2, t.ordered, c.concurrency, t.channel_concurrency
    HAVING count(*) > CASE WHEN t.ordered THEN 1 ELSE coalesce(c.concurrency, t.channel_concurrency) END
"""
OUT_OF_TURN = """
    SELECT m.channel, m.id, f.id AS first, f.available_at, m.available_at AS its FROM messages.message AS m
    JOIN messages.message AS f ON f.topic = m.topic AND f.channel = m.channel AND f.claim_id IS NULL AND f.id < m.id
    WHERE m.topic = 'ordered' AND m.claim_id IS NOT NULL
"""


class Load:
    """Threads that use one queue at random until the time is over; the test raises the error of any of them."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.until = time.monotonic() + SECONDS
        self.begun: list[tuple[str, str | None, int, float]] = []
        self.completed: list[tuple[str, int]] = []
        self.lock = threading.Lock()
        self.samples = 0

    def going(self) -> Iterator[None]:
        while time.monotonic() < self.until or not self.has_seen_enough():
            yield

    def has_seen_enough(self) -> bool:
        """Whether enough messages ran; a slow machine takes longer."""
        with self.lock:
            topics = [topic for topic, *_ in self.begun]
            spaced = Counter(channel for topic, channel, *_ in self.begun if topic == "spaced")
            channels = {channel for channel, _ in self.completed}
        has_gaps = all(spaced[channel] > 1 for channel in "abcd")
        return (
            self.samples > 20
            and {*topics} == {*TOPICS}
            and topics.count("rated") > BURST
            and len(channels) > 4
            and has_gaps
        )

    def work(self, seed: int) -> None:
        """Settle the messages of the last claim and claim again, in one transaction, as a daemon does."""
        chance = random.Random(seed)
        queue = Queue(self.database.connect())
        held: list[Any] = []
        for _ in self.going():
            with queue.conn.transaction():
                ended = self.settle(queue, held, chance)
                topics = chance.sample(TOPICS, chance.randint(1, len(TOPICS)))
                claimed, _ = queue.claim_with_next_due(*topics, worker=f"w{seed}", limit=chance.choice([1, 3, 20, 100]))
                when = queue.rows(
                    "SELECT topic, channel, id, extract(epoch FROM locked_at)::float AS at "
                    "FROM messages.message WHERE claim_id = ANY (%s)",
                    [list({c.claim_id for c in claimed})],
                )
            with self.lock:
                self.begun += [tuple(each) for each in when]
                self.completed += ended
            held = claimed
        with queue.conn.transaction():
            queue.settle("release", held)

    def settle(self, queue: Queue, held: list[Any], chance: random.Random) -> list[tuple[str, int]]:
        kinds = defaultdict(list)
        for each in held:
            kinds[chance.choices(["complete", "retry", "defer", "release"], [8, 1, 1, 1])[0]].append(each)
        for kind in sorted(kinds):
            why = [["boom"] * len(kinds[kind])] if kind == "retry" else []
            assert queue.settle(kind, kinds[kind], *why) == []
        return [(c.channel, c.id) for c in kinds["complete"] if c.topic == "ordered"]

    def publish(self, seed: int) -> None:
        chance = random.Random(seed)
        queue = Queue(self.database.connect())
        for _ in self.going():
            topic = chance.choice(TOPICS)
            # One publisher per ordered channel: of two, the first to publish might not be the first to commit.
            channel = (
                f"{seed}:{chance.randrange(8)}" if topic == "ordered" else chance.choice([None, "a", "b", "c", "d"])
            )
            more = {"expires_at": "2026-01-01"} if topic == "narrow" and chance.random() < 0.3 else {}
            queue.publish_many(chance.randint(1, 20), topic, channel=channel, **more)

    def tick(self) -> None:
        queue = Queue(self.database.connect())
        for _ in self.going():
            assert -1 not in [row.count for row in queue.rows("SELECT count FROM messages.tick('hand')")]
            time.sleep(0.05)

    def watch(self) -> None:
        queue = Queue(self.database.connect())
        for _ in self.going():
            assert queue.rows(TOO_MANY_IN_A_TOPIC) == []
            assert queue.rows(TOO_MANY_IN_A_CHANNEL) == []
            assert queue.rows(OUT_OF_TURN) == []
            self.samples += 1


@pytest.fixture
def policies(own_queue: Queue) -> None:
    never = {"kind": "none"}
    own_queue.policy("*", max_attempts=0, backoff=never)
    own_queue.policy("narrow", max_concurrency=7, max_depth=1_000_000, ttl="1 hour")
    own_queue.policy("rated", dequeue_rate=RATE, burst=BURST)
    own_queue.policy("both", max_concurrency=9, channel_concurrency=2)
    own_queue.conn.execute(
        "INSERT INTO messages.channel (topic, channel, concurrency) VALUES ('both', 'a', 4), ('both', 'b', 1)"
    )
    own_queue.policy("spaced", channel_min_interval=f"{SPACE_S} s")
    own_queue.policy("ordered", ordered=True, backoff={"kind": "constant", "base": "20 ms"})


@pytest.mark.usefixtures("policies")
def test_no_limit_is_ever_exceeded_and_no_deadlock_occurs(own_database: Database, own_queue: Queue) -> None:
    # A session that stops while it holds a lock is no deadlock.
    own_queue.conn.execute("ALTER FUNCTION messages.tick SET lock_timeout = '60s'")
    load = Load(own_database)
    calls: list[Callable[[], Any]] = [lambda n=n: load.work(n) for n in range(8)]
    calls += [lambda n=n: load.publish(n) for n in range(2)]
    calls += [load.tick, load.watch]

    with ThreadPoolExecutor(len(calls)) as threads:
        running = [threads.submit(call) for call in calls]
    for each in running:
        each.result()

    assert load.samples > 20
    begun = defaultdict(list)
    for topic, channel, _, at in sorted(load.begun, key=lambda each: each[3]):
        begun[topic, channel if topic == "spaced" else None].append(at)
    assert {topic for topic, _ in begun} == set(TOPICS)
    assert_the_rate_was_kept(begun["rated", None])
    for channel in "abcd":
        assert min(b - a for a, b in pairwise(begun["spaced", channel])) >= SPACE_S - 2e-6
    by_channel = defaultdict(list)
    for channel, message_id in load.completed:
        by_channel[channel].append(message_id)
    assert len(by_channel) > 4
    assert all(ids == sorted(ids) for ids in by_channel.values())


def assert_the_rate_was_kept(begun: list[float]) -> None:
    """In every window of t seconds at most rate * t + burst messages begin."""
    assert len(begun) > BURST
    allowed = 0.0
    last = begun[0]
    for at in begun:
        allowed = max(0.0, allowed - (at - last) * RATE) + 1
        last = at
        assert allowed <= BURST + 1e-3
