"""The publishers and operators of a storm. Each records the results of its own actions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from random import Random
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from pgrouse import NewMessage, publish, publish_many
from tests.faults.ledger import Group, Ledger, Refusal
from tests.faults.topics import REMOTE, TOPICS
from tests.sql.queue import Queue

# More would only wait: the test is about faults, not about a backlog.
ENOUGH = 400
# Topics with a limit, and those with slow handlers, get single messages only.
SLOW = ("full", "few", "brief", "child", "threads", "timed", "strict")
LATE = ("often", "once", "shut", "few", REMOTE)
LIVE = "SELECT count(*) FROM messages.message WHERE topic NOT IN ('unhandled', 'shut', 'lettered.dlq')"


class Actor(threading.Thread):
    """Does one thing after the other until stopped, on a connection that it opens again whenever it broke."""

    def __init__(self, name: str, dsn: str, ledger: Ledger, seed: str) -> None:
        super().__init__(name=name, daemon=True)
        self.dsn, self.ledger = dsn, ledger
        self.chance = Random(f"{seed} {name}")
        self.stopping = threading.Event()
        self.broken: BaseException | None = None

    def run(self) -> None:
        """Act; any error that is not one of the connection is kept for the thread that joins this one."""
        try:
            while not self.stopping.is_set():
                with suppress(psycopg.OperationalError, psycopg.InterfaceError):
                    self._connected()
                self.stopping.wait(0.05)
        except BaseException as error:  # noqa: BLE001 - raised by the thread that joins this one
            self.broken = error

    def _connected(self) -> None:
        with psycopg.connect(self.dsn, autocommit=True, connect_timeout=5, prepare_threshold=None) as conn:
            while not self.stopping.is_set():
                self.act(conn)

    def act(self, conn: psycopg.Connection[Any]) -> None:
        """Do one thing."""
        raise NotImplementedError


class Publisher(Actor):
    """Publishes in every way. Each channel of an ordered topic belongs to one publisher, so that it has an order."""

    def __init__(self, number: int, topics: list[str], dsn: str, ledger: Ledger, seed: str) -> None:
        super().__init__(f"publisher-{number}", dsn, ledger, seed)
        self.number, self.topics, self._tags, self._acts = number, topics, 0, 0
        self._ways: list[Callable[[psycopg.Connection[Any]], None]] = [
            *[self._single] * 20, *[self._rows] * 2, self._copy, self._together, self._taken_back, self._late,
        ]  # fmt: skip

    def act(self, conn: psycopg.Connection[Any]) -> None:
        """Publish something, unless enough messages wait."""
        self._acts += 1
        if self._acts % 10 == 0:
            while conn.execute(LIVE).fetchone()[0] > ENOUGH and not self.stopping.wait(0.1):  # type: ignore[index]
                pass
        self.chance.choice(self._ways)(conn)
        time.sleep(self.chance.uniform(0, 0.02))

    def _tag(self) -> str:
        self._tags += 1
        return f"{self.name}/{self._tags}"

    def _message(self, name: str | None = None) -> tuple[Group, NewMessage]:
        """Make a random message."""
        name = name or self.chance.choice(self.topics)
        topic, tag = TOPICS[name], self._tag()
        channel = self.chance.choice(topic.channels) if topic.channels else None
        if "ordered" in topic.settings:
            channel = f"{channel}{self.number}"
        key = f"k{self.chance.randint(1, topic.keys)}" if topic.keys else None
        plain = channel is None and key is None
        message = NewMessage(
            topic=name,
            payload=topic.payload(tag, self.chance),
            channel=channel,
            key=key,
            priority=self.chance.choice((0, 5, 5, 9)) if plain else None,
            delay=timedelta(seconds=self.chance.uniform(0.1, 2)) if plain and self.chance.random() < 0.15 else None,
            on_conflict=self.chance.choice(("replace", "ignore")) if key else "error",
        )
        return Group(name, [tag], channel, merges=key is not None), message

    def _plain(self) -> tuple[str, list[str], list[NewMessage]]:
        """Make random messages of one topic without channels, keys and a limit."""
        name = self.chance.choice(
            [name for name in self.topics if not TOPICS[name].channels and not TOPICS[name].keys and name not in SLOW]
        )
        made = [self._message(name) for _ in range(self.chance.randint(2, 20))]
        return name, [tag for group, _ in made for tag in group.tags], [message for _, message in made]

    def _send(self, conn: psycopg.Connection[Any], message: NewMessage) -> int:
        published = publish(
            conn, message.topic, message.payload, channel=message.channel, key=message.key, priority=message.priority,
            delay=message.delay, on_conflict=message.on_conflict,
        )  # fmt: skip
        if published.outcome == "dropped":
            raise Refusal
        return int(published)

    def _single(self, conn: psycopg.Connection[Any]) -> None:
        group, message = self._message()
        with self.ledger.recorded(group):
            group.ids = [self._send(conn, message)]

    def _rows(self, conn: psycopg.Connection[Any]) -> None:
        """One statement of plain SQL."""
        name, tags, messages = self._plain()
        with self.ledger.recorded(Group(name, tags)) as group:
            rows = conn.execute(
                "INSERT INTO messages.message (topic, payload) SELECT %s, p FROM unnest(%s::jsonb[]) AS p RETURNING id",
                [name, [Jsonb(m.payload) for m in messages]],
            ).fetchall()
            group.ids = [row[0] for row in rows]

    def _copy(self, conn: psycopg.Connection[Any]) -> None:
        name, tags, messages = self._plain()
        with self.ledger.recorded(Group(name, tags)):
            publish_many(conn, messages)

    def _together(self, conn: psycopg.Connection[Any]) -> None:
        """Several in one transaction, one of them in a savepoint that is rolled back."""
        name, tags, messages = self._plain()
        with self.ledger.recorded(Group(name, tags[1:])) as group, self.ledger.recorded(Group(name, tags[:1])):
            with conn.transaction():
                with suppress(Refusal), conn.transaction():
                    self._send(conn, messages[0])
                    raise Refusal
                group.ids = [self._send(conn, message) for message in messages[1:]]
            raise Refusal

    def _taken_back(self, conn: psycopg.Connection[Any]) -> None:
        group, message = self._message()
        with self.ledger.recorded(group), conn.transaction():
            self._send(conn, message)
            raise Refusal

    def _late(self, conn: psycopg.Connection[Any]) -> None:
        """Committed long after it was inserted: its times are in the past before it is visible."""
        group, message = self._message(self.chance.choice([name for name in LATE if name in self.topics]))
        with self.ledger.recorded(group), conn.transaction():
            group.ids = [self._send(conn, message)]
            self.stopping.wait(self.chance.uniform(0.1, 1))


class Operator(Actor):
    """Redrives, requeues, cancels, skips, pauses; and runs by hand the tasks of pg_cron."""

    def act(self, conn: psycopg.Connection[Any]) -> None:
        """Do one operation."""
        queue = Queue(conn)
        what = self.chance.choice(
            (self._redrive, self._redrive, self._requeue, self._cancel, self._skip, self._pause, self._maintain)
        )
        with suppress(psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled, psycopg.errors.DeadlockDetected):
            what(queue)
        self.stopping.wait(self.chance.uniform(0.05, 0.3))

    def _some(self, queue: Queue, statement: str) -> list[int]:
        ids = [row.id for row in queue.rows(statement)]
        return self.chance.sample(ids, min(len(ids), 5))

    def _redrive(self, queue: Queue) -> None:
        dead = self._some(queue, "SELECT id FROM messages.dead WHERE redrives < 3 ORDER BY archived_at DESC LIMIT 50")
        for row in queue.rows("SELECT * FROM messages.redrive(%s)", [dead]):
            if row.outcome in ("redriven", "keyless"):
                self.ledger.redriven[row.archived_id] = row.message_id

    def _requeue(self, queue: Queue) -> None:
        copies = self._some(queue, "SELECT id FROM messages.message WHERE topic = 'lettered.dlq' LIMIT 20")
        queue.rows("SELECT * FROM messages.requeue_dead_letters(%s)", [copies])

    def _cancel(self, queue: Queue) -> None:
        live = self._some(
            queue, "SELECT id FROM messages.message WHERE topic IN ('often', 'few', 'threads', 'keyed') LIMIT 20"
        )
        self.ledger.cancelled += queue.call("cancel", live, "the customer changed their mind")

    def _skip(self, queue: Queue) -> None:
        queue.call("skip", self._some(queue, "SELECT id FROM messages.message WHERE topic = 'line' LIMIT 5")[:1])

    def _pause(self, queue: Queue) -> None:
        queue.call("pause", "fair", "the storm", "0.3 s")

    def _maintain(self, queue: Queue) -> None:
        task = self.chance.choice(("expire_locks", "expire_messages", "renotify_stale", "recount_depth", "prune"))
        queue.call(task)
        queue.call("raise_low_water", "0 s")


@contextmanager
def acting(actors: list[Actor]) -> Iterator[list[Actor]]:
    """Run them during the block; raise the error of any of them."""
    for actor in actors:
        actor.start()
    try:
        yield actors
    finally:
        for actor in actors:
            actor.stopping.set()
        for actor in actors:
            actor.join(60)
    broken = [actor.broken for actor in actors if actor.broken]
    if broken:
        raise broken[0]
    assert not any(actor.is_alive() for actor in actors), "a publisher hangs"
