"""Many sessions claim, settle, publish and operate at the same time: no call of any of them fails.

At READ COMMITTED another session may change anything between two statements of a function. So every step of a call must
hold if the row that the step before it saw is gone. PGROUSE_CALLERS_SECONDS=600 makes the run a long one.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from itertools import groupby
from random import Random
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.server.postgres import Database
from tests.sql.queue import Queue, Row

SECONDS = float(os.environ.get("PGROUSE_CALLERS_SECONDS", "6"))
SEED = os.environ.get("PGROUSE_CALLERS_SEED") or str(time.time_ns())
CLAIMERS, RACERS, PUBLISHERS = 4, 4, 2
# These are so few that a claim often takes the last message of a topic.
ENOUGH = 40

PLAIN = [f"plain-{n}" for n in range(6)]
RACED = ["raced-a", "raced-b"]
POLICIES: dict[str, dict[str, Any]] = {
    **{name: {} for name in PLAIN + RACED},
    "few": {"max_concurrency": 2},
    "metered": {"dequeue_rate": 200, "burst": 3},
    "fair": {"channel_concurrency": 2},
    "spaced": {"channel_min_interval": "20 ms"},
    "line": {"ordered": True},
    "keyed": {"key_on_retry": "keep"},
    "superseded": {"key_on_retry": "supersede"},
    "held": {"key_ttl": "50 ms"},
    "full": {"max_depth": 5},
    "broken-a": {"breaker": {"min_attempts": 3, "pause": "1s"}},
    "broken-b": {"breaker": {"min_attempts": 3, "pause": "1s"}},
    "lettered": {"dead_letter": True},
    "brief": {"ttl": "30 ms"},
    "unkept": {"archive_success": "none"},
    "strict": {"strict_lock": True, "lock_duration": "1 s"},
}
CHANNELS = {name: ["a", "b", "c"] for name in ("fair", "spaced", "line", "plain-0")}
KEYED = ("keyed", "superseded", "held")
# The settings that each operator changes, and changes back.
SETTINGS: list[tuple[str, str, list[Any]]] = [
    ("plain-1", "max_concurrency", [None, 1]),
    ("plain-2", "dequeue_rate", [None, 300]),
    ("plain-3", "ordered", [None, True]),
    ("plain-4", "max_attempts", [None, 1, 3]),
    ("plain-5", "worker_concurrency", [None, 1]),
    ("few", "max_concurrency", [2, 5]),
    ("metered", "dequeue_rate", [200, 1000]),
    ("line", "ordered", [True, False]),
    ("keyed", "key_on_retry", ["keep", "supersede"]),
    ("full", "max_depth", [5, None]),
    ("broken-a", "breaker", [POLICIES["broken-a"]["breaker"], None]),
    ("broken-b", "breaker", [POLICIES["broken-b"]["breaker"], None]),
]
# What the queue may answer to a publisher.
REFUSALS = ("PGR01", "23505")


def _described(error: psycopg.Error) -> str:
    """Return what happened and in which functions, without the text of statements."""
    lines = [
        line for line in (error.diag.context or "").splitlines() if line.startswith(("PL/", "SQL function", "while"))
    ]
    return "\n  ".join(
        [f"{error.sqlstate} {error.diag.message_primary or error}", error.diag.message_detail or "", *lines]
    )


class Caller(threading.Thread):
    """Calls one function after the other until stopped, on a connection of its own, and records every error."""

    def __init__(self, name: str, dsn: str) -> None:
        super().__init__(name=name, daemon=True)
        self.chance = Random(f"{SEED} {name}")
        self.dsn, self.stopping = dsn, threading.Event()
        self.calls, self.errors = 0, list[str]()

    def run(self) -> None:
        """Call until stopped."""
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            self.queue = Queue(conn)
            while not self.stopping.is_set():
                act = self.chance.choice(self.acts())
                try:
                    act()
                except psycopg.Error as error:
                    self.errors.append(f"{self.name}, {act.__name__}: {_described(error)}")
                self.calls += 1

    def acts(self) -> list[Callable[[], None]]:
        """The actions of this caller; it does an action that is listed twice twice as often."""
        raise NotImplementedError


WAYS = ["retry", "retry", "fail", "reject", "defer", "release", "wait_for_event"]


class Claimer(Caller):
    """Claims of several topics, and settles in every way.

    Each kind is in a statement of its own, alone or in one transaction with a claim.
    """

    def acts(self) -> list[Callable[[], None]]:
        return [self.claim_and_settle] * 3 + [self.turn] * 2 + [self.forget, self.look]

    def claim(self) -> list[Row]:
        topics = self.chance.sample(list(POLICIES), self.chance.randint(2, len(POLICIES)))
        if self.chance.random() < 0.5:
            return self.queue.claim(*topics, worker=self.name, limit=self.chance.randint(1, 10))
        after = self.chance.choice(topics)
        held, _ = self.queue.claim_with_next_due(*topics, worker=self.name, limit=10, start=2, after_topic=after)
        return held

    def claim_and_settle(self) -> None:
        held = self.claim()
        if held:
            self.work(held)
            self.settle(held)

    def turn(self) -> None:
        """As a daemon does: settle what ended and claim what comes next in one transaction."""
        held = self.claim()
        with self.queue.conn.transaction():
            self.settle(held)
            held = self.claim()
        self.settle(held)

    def forget(self) -> None:
        """Lose the answer to a claim."""
        self.claim()
        self.queue.call("release_orphaned", self.name, [])

    def work(self, held: list[Row]) -> None:
        first = held[0]
        self.queue.settle("count_runs", held)
        self.queue.settle("heartbeat", held)
        self.queue.settle("set_progress", held, [Jsonb(n) for n in range(len(held))])
        if self.chance.random() < 0.3:
            steps = self.queue.rows("SELECT * FROM messages.load_steps(%s, %s)", [first.id, first.claim_id])
            if [step.name for step in steps] == [None]:
                self.queue.call("save_step", first.id, first.claim_id, "step", Jsonb(1))
            self.queue.rows("SELECT * FROM messages.load_events(%s, %s)", [first.id, first.claim_id])

    def settle(self, held: list[Row]) -> None:
        ways = [(self.chance.choice(["complete"] * 4 + WAYS), row) for row in held]
        together = self.chance.random() < 0.5
        with self.queue.conn.transaction() if together else nullcontext():
            for way, group in groupby(sorted(ways, key=lambda each: each[0]), key=lambda each: each[0]):
                rows = [row for _, row in group]
                of_errors = [["boom"] * len(rows)] if way in ("retry", "fail", "reject") else []
                delays = (
                    {"delays": [f"{self.chance.choice((0, 5, 30))} ms" for _ in rows]}
                    if way in ("retry", "defer")
                    else {}
                )
                waits = [["ok"] * len(rows), [1] * len(rows), ["20 ms"] * len(rows)] if way == "wait_for_event" else []
                self.queue.settle(way, rows, *of_errors, *waits, **delays)

    def look(self) -> None:
        topics = self.chance.sample(list(POLICIES), 3)
        self.queue.call("next_due", topics)
        self.queue.rows("SELECT * FROM messages.ready_topics(%s)", [topics])
        self.queue.arm(self.name, topics, "1 second")


class Racer(Caller):
    """Publishes one message, or takes whatever is there.

    Mostly this is the only message of a topic, which other racers want, too.
    """

    def acts(self) -> list[Callable[[], None]]:
        return [self.publish, self.claim, self.claim]

    def publish(self) -> None:
        self.queue.publish(self.chance.choice(RACED))

    def claim(self) -> None:
        self.queue.settle("complete", self.queue.claim(*RACED, worker=self.name))


class Publisher(Caller):
    """Publishes in every way, unless enough is there."""

    def __init__(self, name: str, dsn: str) -> None:
        super().__init__(name, dsn)
        self.published: list[int] = []

    def acts(self) -> list[Callable[[], None]]:
        del self.published[:-20]
        if self.queue.value("SELECT count(*) FROM messages.message") > ENOUGH:
            return [self.pause]
        return [self.insert] * 3 + [self.publish] * 2 + [self.follow, self.wait_for]

    def pause(self) -> None:
        self.stopping.wait(0.01)

    def insert(self) -> None:
        topic = self.chance.choice(PLAIN * 2 + list(POLICIES))
        channel = self.chance.choice(CHANNELS.get(topic, [None]))
        published = self.accepted(lambda: self.queue.publish_many(self.chance.randint(1, 2), topic, channel=channel))
        if topic != "unkept":
            self.published += published

    def publish(self) -> None:
        topic = self.chance.choice(KEYED)
        on_conflict = self.chance.choice(["error", "ignore", "replace", "append"])
        self.accepted(lambda: [self.queue.send([1], topic, key=self.chance.choice("ab"), on_conflict=on_conflict).id])

    def follow(self) -> None:
        """Publish what comes after others."""
        after_failed = self.chance.choice(["hold", "cancel", "run"])
        after = self.chance.sample(self.published, min(2, len(self.published)))
        self.published += self.accepted(
            lambda: [self.queue.send(1, "plain-5", after=after, after_failed=after_failed).id]
        )

    def accepted(self, publish: Callable[[], list[int]]) -> list[int]:
        try:
            return publish()
        except psycopg.Error as error:
            if error.sqlstate not in REFUSALS:
                raise
            return []

    def wait_for(self) -> None:
        if self.published:
            self.queue.rows("SELECT * FROM messages.wait_for(%s)", [self.chance.choice(self.published)])
            self.queue.rows("SELECT * FROM messages.wait_for_many(%s, '1 s')", [self.published])


class Operator(Caller):
    """Pauses, resumes, limits, cancels, redrives: whatever people do with topics and messages."""

    def acts(self) -> list[Callable[[], None]]:
        self.stopping.wait(0.005)
        return [
            self.pause,
            self.resume,
            self.set,
            self.limit_channel,
            self.cancel,
            self.skip,
            self.retry_now,
            self.signal,
            self.edit,
            self.redrive,
            self.unblock,
        ]

    def topic(self) -> str:
        return self.chance.choice(list(POLICIES))

    def some(self) -> list[int]:
        return [row.id for row in self.queue.rows("SELECT id FROM messages.message ORDER BY random() LIMIT 3")]

    def pause(self) -> None:
        topic = self.topic()
        channel = self.chance.choice([None, *CHANNELS[topic]]) if topic in CHANNELS else None
        self.queue.call("pause", topic, resume_in="20 ms", channel=channel)

    def resume(self) -> None:
        topic = self.topic()
        self.queue.call("resume", topic, channel=self.chance.choice([None, *CHANNELS.get(topic, [])]))

    def set(self) -> None:
        topic, setting, values = self.chance.choice(SETTINGS)
        self.queue.policy(topic, **{setting: self.chance.choice(values)})

    def limit_channel(self) -> None:
        topic = self.chance.choice(list(CHANNELS))
        channel = self.chance.choice(CHANNELS[topic])
        if self.chance.random() < 0.5:
            self.queue.conn.execute("DELETE FROM messages.channel WHERE topic = %s AND channel = %s", [topic, channel])
        else:
            self.queue.conn.execute(
                "INSERT INTO messages.channel (topic, channel, concurrency) VALUES (%s, %s, 1)"
                " ON CONFLICT (topic, channel) DO UPDATE SET concurrency = 2, min_interval = '5 ms'",
                [topic, channel],
            )

    def cancel(self) -> None:
        self.queue.call("cancel", self.some()[:1])

    def skip(self) -> None:
        self.queue.call("skip", self.some()[:1])

    def retry_now(self) -> None:
        self.queue.call("retry_now", self.some())

    def signal(self) -> None:
        for message_id in self.some()[:1]:
            self.queue.call("signal", message_id, "ok", number=2)
        self.queue.call("signal_key", self.chance.choice(KEYED), self.chance.choice("ab"), "ok", number=2)

    def edit(self) -> None:
        for message_id in self.some()[:1]:
            self.queue.call("edit", message_id, payload=Jsonb("edited"))

    def redrive(self) -> None:
        dead = [row.id for row in self.queue.rows("SELECT id FROM messages.dead ORDER BY archived_at DESC LIMIT 20")]
        self.queue.rows("SELECT * FROM messages.redrive(%s)", [self.chance.sample(dead, min(3, len(dead)))])
        copies = "SELECT id FROM messages.message WHERE topic = 'lettered.dlq' LIMIT 2"
        self.queue.rows(
            "SELECT * FROM messages.requeue_dead_letters(%s)", [[row.id for row in self.queue.rows(copies)]]
        )

    def unblock(self) -> None:
        blocked = self.queue.rows("SELECT id FROM messages.blocked_message LIMIT 2")
        self.queue.call("unblock", [row.id for row in blocked])


class Maintainer(Caller):
    """Does what daemons and pg_cron do in addition to the claims."""

    def acts(self) -> list[Callable[[], None]]:
        self.stopping.wait(0.02)
        return [self.tick, self.raise_low_water, self.expire_locks, self.prune]

    def tick(self) -> None:
        done = self.queue.rows("SELECT * FROM messages.tick('daemon')")
        self.errors += [f"{self.name}: the task {row.task} of a tick failed" for row in done if row.count == -1]

    def raise_low_water(self) -> None:
        self.queue.conn.execute("UPDATE messages.low_water_mark SET next_run_at = 'epoch', left_edge_at = 'epoch'")
        self.queue.call("raise_low_water", "0 s")

    def expire_locks(self) -> None:
        self.queue.call("expire_locks")

    def prune(self) -> None:
        for function in ("prune_rates", "prune_mutexes"):
            self.queue.value(f"SELECT messages.{function}(100)")
        self.queue.call("prune_claim_cursors")


@pytest.mark.timeout(SECONDS + 300)
def test_no_call_of_many_callers_fails(database: Database) -> None:
    queue = Queue(database.connect())
    for topic, settings in POLICIES.items():
        queue.policy(topic, **({"lock_duration": "2 s", "backoff": {"kind": "none"}} | settings))
    callers: list[Caller] = [
        *(Claimer(f"claimer-{n}", database.dsn) for n in range(CLAIMERS)),
        *(Racer(f"racer-{n}", database.dsn) for n in range(RACERS)),
        *(Publisher(f"publisher-{n}", database.dsn) for n in range(PUBLISHERS)),
        Operator("operator", database.dsn),
        *(Maintainer(f"maintainer-{n}", database.dsn) for n in range(2)),
    ]

    over_at = time.monotonic() + SECONDS
    for caller in callers:
        caller.start()
    while time.monotonic() < over_at and not any(caller.errors for caller in callers):
        time.sleep(0.05)
    for caller in callers:
        caller.stopping.set()
    for caller in callers:
        caller.join(120)

    failed = [error for caller in callers for error in caller.errors]
    assert not failed, f"PGROUSE_CALLERS_SEED={SEED}\n" + "\n\n".join(failed[:10])
    assert not any(caller.is_alive() for caller in callers), "a caller hangs"
    assert all(caller.calls for caller in callers), {caller.name: caller.calls for caller in callers}
