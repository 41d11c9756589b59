"""The armed worker in practice.

A sleeping worker is notified, a busy one is not, and no message is missed in between.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from psycopg.types.json import Jsonb

from tests.daemon.process import AT_ONCE_S, Daemon, Journal, is_armed, now, until_armed
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

Start = Callable[..., Daemon]


def test_a_sleeping_daemon_is_notified(start: Start, queue: Queue, listen: Callable[..., Any]) -> None:
    start({"job": "work:echo"})
    listener = listen("new_message")

    published = queue.publish("job")
    queue.publish("other")

    assert listener.received() == [str(published)]


def test_publishes_neither_notify_nor_look_for_sleepers_while_a_busy_daemon_has_taken_down_its_flag(
    start: Start, queue: Queue, journal: Journal, listen: Callable[..., Any]
) -> None:
    # No tick: it would notify again about messages that have waited for ten seconds.
    daemon = start({"job": "holding:nap"}, concurrency=10, maintenance_interval="1h")
    # Enough for half a minute: the daemon is never idle, however long the publisher is delayed.
    queue.publish_many(3000, "job", payload=Jsonb(0.1))
    stopping, published = threading.Event(), list[int]()
    load = threading.Thread(target=_publish_until, args=(stopping, queue, published))
    load.start()
    watcher = Queue(listen("unused").conn)

    try:
        eventually(lambda: not is_armed(watcher.conn, daemon))
        eventually(lambda: watcher.value("SELECT pg_sequence_last_value('messages.armed_until')") == 1)
        listener = listen("new_message")
        before, worked = len(published), len(journal.entries("start"))
        eventually(lambda: len(published) > before + 50 and len(journal.entries("start")) > worked + 100)
        received = listener.received()
    finally:
        stopping.set()
        load.join()

    assert received == []
    watcher.conn.execute("DELETE FROM messages.message WHERE claim_id IS NULL")
    until_armed(watcher.conn, daemon)


def _publish_until(stopping: threading.Event, queue: Queue, published: list[int]) -> None:
    """Publish one after the other, behind all waiting messages."""
    while not stopping.wait(0.005):
        published.append(queue.publish("job", payload=Jsonb(0.1)))


def test_no_message_waits_for_the_poll_although_publishers_commit_late_and_at_random(
    start: Start, queue: Queue, journal: Journal, database: Database
) -> None:
    start({"job": "work:echo"})
    seeds = range(4)

    with ThreadPoolExecutor(len(seeds)) as threads:
        committed = dict(
            each for some in threads.map(lambda seed: _publish_slowly(database, seed), seeds) for each in some
        )

    eventually(lambda: len(journal.entries("start")) == len(committed), within_s=AT_ONCE_S)
    waited = [e["at"] - committed[e["id"]] for e in journal.entries("start")]
    assert max(waited) < AT_ONCE_S


def _publish_slowly(database: Database, seed: int) -> list[tuple[int, float]]:
    """Publish for some seconds, and return the commit times.

    The transactions stay open for up to 0.3 s after the insert.
    """
    chance, queue, ends_at = random.Random(seed), Queue(database.connect()), now() + 5
    committed = []
    while now() < ends_at:
        with queue.conn.transaction():
            published = queue.publish("job")
            time.sleep(chance.choice([0, 0, chance.uniform(0, 0.3)]))
        committed.append((published, now()))
        time.sleep(chance.choice([0, chance.uniform(0, 0.05), chance.uniform(0, 0.3)]))
    return committed


def test_a_publish_above_read_committed_always_notifies(
    start: Start, queue: Queue, journal: Journal, database: Database
) -> None:
    publisher = Queue(database.connect())
    # No tick: it would find that no flag is set, and publishes would not look for one.
    daemon = start({"job": "work:echo"}, maintenance_interval="1h")
    queue.conn.execute("UPDATE messages.sleeper SET armed_until = 'epoch'")

    with publisher.conn.transaction():
        publisher.conn.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        publisher.conn.execute("SELECT FROM messages.message")
        published = publisher.publish("job")

    began = now()
    assert journal.entry("start", published)["at"] - began < AT_ONCE_S, daemon.log.read_text()
    assert daemon.alive
