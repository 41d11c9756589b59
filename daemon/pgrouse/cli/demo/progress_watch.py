"""Watches the queue, the daemons and the alerts while the demo waits for something."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg

from pgrouse.cli.demo.alerts import AlertFeed
from pgrouse.cli.demo.screen import Screen
from pgrouse.cli.demo.worker import DemoWorkers
from pgrouse.errors import PgrouseError
from pgrouse.publishing.publish import publish


class PublishedMessages:
    """The ids of the messages that were published, by topic."""

    def __init__(self) -> None:
        self.by_topic: Counter[str] = Counter()
        self.ids: list[int] = []

    def __len__(self) -> int:
        return len(self.ids)

    def publish(self, conn: psycopg.Connection[Any], topic: str, payload: Any) -> int:
        """Publish a message in the connection's transaction and note it; return its id."""
        message_id = publish(conn, topic, payload)
        self.by_topic[topic] += 1
        self.ids.append(message_id)
        return message_id


T = TypeVar("T")
Counts = dict[tuple[str, str | None], int]

STEP_S = 0.02
COUNT_EVERY_S = 0.05
# Counting must not slow down what the demo shows: it uses at most a tenth of the time.
COUNT_SHARE = 10
PATIENCE_S = 60.0
COUNT = """
SELECT a.topic, a.result, count(*) FROM messages.message_archive AS a GROUP BY a.topic, a.result
UNION ALL
SELECT m.topic, NULL, count(*) FROM messages.message AS m GROUP BY m.topic
"""


class Stuck(PgrouseError):
    """Nothing has moved for a long time."""


class ProgressWatch:
    """Watches the progress of the demo.

    Args:
        conn: an autocommit connection.

    Attributes:
        counts: messages by topic and result; the result None stands for messages that have not ended.
        first_seen_at: when the first message was seen to be done, by the monotonic clock.
    """

    def __init__(
        self,
        conn: psycopg.Connection[Any],
        published: PublishedMessages,
        workers: DemoWorkers,
        alerts: AlertFeed,
        screen: Screen,
    ) -> None:
        self.conn, self.published, self.workers, self.alerts, self.screen = conn, published, workers, alerts, screen
        self.counts: Counts = {}
        self.first_seen_at: float | None = None
        self._count_at = 0.0
        self._moved_at = time.monotonic()
        self._recent: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])

    @property
    def done(self) -> int:
        """How many messages have ended."""
        return sum(count for (_, result), count in self.counts.items() if result is not None)

    @property
    def dead(self) -> int:
        """How many of them are dead messages."""
        return self.done - sum(count for (_, result), count in self.counts.items() if result == "success")

    @property
    def waiting(self) -> int:
        """How many messages have not ended."""
        return sum(count for (_, result), count in self.counts.items() if result is None)

    @property
    def quiet_s(self) -> float:
        """How long nothing has changed while the demo waited for it."""
        return time.monotonic() - self._moved_at

    def step(self) -> None:
        """Look once at everything; if called too soon, only at the daemons.

        Raises:
            WorkerDied: a daemon ended that should have continued.
        """
        self.workers.check()
        if time.monotonic() >= self._count_at:
            self._read_alerts()
            self.count()
            self.screen.show_progress(self.done, len(self.published), self._per_s(), self.dead)

    def until(self, condition: Callable[[], T], doing: str) -> T:
        """Count, then repeat `step` until the condition returns something true, and return that.

        Raises:
            Stuck: nothing has changed for a minute.
        """
        self._moved_at = time.monotonic()
        self.count()
        while not (found := condition()):
            self.step()
            if self.quiet_s > PATIENCE_S:
                raise Stuck(f"{doing}: nothing has moved for {PATIENCE_S:.0f} s; {self.waiting:,} messages wait")
            time.sleep(STEP_S)
        return found

    def count(self) -> None:
        """Count the messages, now."""
        began = time.monotonic()
        before, self.counts = self.counts, {(topic, result): n for topic, result, n in self.conn.execute(COUNT)}
        now = time.monotonic()
        self._count_at = now + max(COUNT_EVERY_S, COUNT_SHARE * (now - began))
        if self.counts != before:
            self._moved_at = now
        if self.first_seen_at is None and self.done:
            self.first_seen_at = now

    def _read_alerts(self) -> None:
        """Show the first alert of each topic and result; more would only fill the screen."""
        known = {(each.topic, each.result) for each in self.alerts.received.values()}
        for alert in self.alerts.read_new():
            if (alert.topic, alert.result) not in known:
                known.add((alert.topic, alert.result))
                self.screen.tell("alert", f"dead_message received: {alert}")

    def _per_s(self) -> float:
        """Return how many messages ended per second, in the last second."""
        now, done = time.monotonic(), self.done
        self._recent.append((now, done))
        while now - self._recent[0][0] > 1 and len(self._recent) > 2:  # noqa: PLR2004 - a rate needs two points
            self._recent.popleft()
        since, before = self._recent[0]
        return (done - before) / (now - since) if now > since else 0.0
