"""The content of the queue while pages are shown."""

from __future__ import annotations

import json
from typing import Any

from tests.sql.queue import Queue


def measured(queue: Queue, topic: str = "mail", success: int = 600, **counts: int) -> None:
    """Add measures of the daemons to each of the last ten minutes."""
    given = {"success": success, **counts}
    columns, values = ", ".join(given), ", ".join(map(str, given.values()))
    queue.conn.execute(
        f"""INSERT INTO messages.measure (minute, topic, {columns}, waits, runs, wakes)
            SELECT date_trunc('minute', messages.now()) - n * interval '1 min', %s, {values}, 10::numeric ^ (12 * 30),
                   10::numeric ^ (12 * 25), 10::numeric ^ (12 * 35)
            FROM generate_series(1, 10) AS n""".encode(),
        [topic],
    )


def worker(
    queue: Queue, name: str = "w-1", topics: tuple[str, ...] = ("mail",), age: str = "0 s", **status: Any
) -> None:
    """Add a worker to the registry."""
    state = {"listener": "listening", "in_flight": 1, **status}
    queue.conn.execute(
        """INSERT INTO messages.worker (name, host, pid, version, topics, concurrency, status, seen_at)
           VALUES (%s, 'host-1', 4711, '0.1.0', %s, 10, %s::jsonb, clock_timestamp() - %s::interval)""",
        [name, list(topics), json.dumps(state), age],
    )


def died(queue: Queue, topic: str = "mail", error: str = "TimeoutError: no answer") -> int:
    """Let one message fail for good, and return its id."""
    published = queue.publish(topic)
    claimed = queue.claim(topic, limit=1)
    queue.settle("fail", claimed, [error])
    return published


def busy(queue: Queue) -> None:
    """A busy queue: some of everything."""
    measured(queue, retried=30, failed=3, rejected=2)
    measured(queue, "orders.created", success=1200)
    worker(queue, topics=("mail", "orders.created"))
    worker(queue, "w-2", ("mail",), listener="degraded")
    worker(queue, "w-3", ("mail",), age="5 min")
    queue.publish_many(12, "mail")
    queue.publish_many(3, "mail", channel="customer-1")
    queue.publish_many(2, "orders.created", wait="1 hour")
    queue.publish("no.handler")
    died(queue)
    # As the claim loops of a daemon do.
    queue.claim("mail", worker="w-1/0", limit=2)
    queue.policy("mail", max_concurrency=5, dequeue_rate=100, max_depth=1000)
    queue.schedule("nightly", "0 3 * * *", topic="mail")
    queue.conn.execute("SELECT messages.tick('daemon')")
