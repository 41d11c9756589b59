"""Measures how soon a message is processed when all workers sleep.

It also measures how long a message waits whose notification is lost.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from pgrouse.cli.demo.progress_watch import ProgressWatch

TOPIC = "orders.created"
SILENT = "orders.overnight"  # notify = 'off': as if every notification were lost
PUBLISHES = 100
APART_S = 0.03
LOST = 3
QUIET_S = 0.2  # a worker looks for more messages after its last one, and again while it falls asleep


@dataclass(frozen=True)
class WakeLatency:
    """Latencies in milliseconds, from the return of the publishing commit to the start of the handler.

    Both times are from the machine's monotonic clock.
    """

    publishes: int
    p50_ms: float
    p99_ms: float
    max_ms: float


@dataclass(frozen=True)
class LostNotifications:
    """Messages for which no notification was sent.

    Attributes:
        after_s: how long after the commit of each message its handler started.
        poll: how often, at least, a worker looks without a notification.
    """

    after_s: list[float]
    poll: str


def measure(watch: ProgressWatch) -> WakeLatency:
    """Publish messages one after the other for workers that sleep."""
    watch.until(lambda: _all_sleep(watch), "waiting until all workers sleep")
    committed = {}
    for n in range(PUBLISHES):
        message_id = watch.published.publish(watch.conn, TOPIC, {"id": n})
        committed[message_id] = time.monotonic()
        time.sleep(APART_S)
    watch.until(lambda: not watch.waiting, "waking sleeping workers")
    started = _started(watch, TOPIC)
    latencies = sorted(1000 * (started[each] - at) for each, at in committed.items())
    wake = WakeLatency(PUBLISHES, _quantile(latencies, 0.5), _quantile(latencies, 0.99), latencies[-1])
    watch.screen.tell(
        "wake",
        f"{PUBLISHES} orders, {1000 * APART_S:.0f} ms apart, to sleeping workers: "
        f"p50 {wake.p50_ms:.1f} ms, p99 {wake.p99_ms:.1f} ms"
        " from the return of the commit to the start of the handler, by one monotonic clock",
    )
    return wake


def lose_notifications(watch: ProgressWatch, poll: str) -> LostNotifications:
    """Publish messages without a notification, one after the other, and measure how long each takes."""
    committed = {}
    for n in range(LOST):
        watch.until(lambda: _all_sleep(watch), "waiting until all workers sleep")
        message_id = watch.published.publish(watch.conn, SILENT, {"id": n})
        committed[message_id] = time.monotonic()
        watch.until(lambda: not watch.waiting, "waiting for a message whose notification was lost")
    started = _started(watch, SILENT)
    silence = LostNotifications([started[each] - at for each, at in committed.items()], poll)
    *first, last = [f"{after_s:.1f}" for after_s in silence.after_s]
    watch.screen.tell(
        "lost",
        f"{LOST} orders without a notification: found after {', '.join(first)} and {last} s, when a worker"
        f" looked by itself (poll_interval = {poll})",
    )
    return silence


def _all_sleep(watch: ProgressWatch) -> bool:
    """Whether every worker has been asleep for a while, and is not about to look without a notification.

    A worker records when it will look next, and the record is valid for twice that time: both together tell when it
    fell asleep.
    """
    if watch.waiting or watch.quiet_s < QUIET_S:
        return False
    row = watch.conn.execute(
        """
        SELECT count(*) FROM messages.sleeper AS s
        WHERE split_part(s.worker, ':', 1) = ANY (%s)
          AND s.next_look_at - (s.armed_until - s.next_look_at) < clock_timestamp() - make_interval(secs => %s)
          AND s.next_look_at > clock_timestamp() + make_interval(secs => %s)
        """,
        [[each.name for each in watch.workers.running], QUIET_S, QUIET_S],
    ).fetchone()
    return row == (len(watch.workers.running),)


def _started(watch: ProgressWatch, topic: str) -> dict[int, float]:
    """Return when the handler of each message started, from the message's output."""
    rows = watch.conn.execute(
        "SELECT a.id, (a.output ->> 'started_at')::float8 FROM messages.message_archive AS a WHERE a.topic = %s",
        [topic],
    )
    return dict(rows.fetchall())


def _quantile(values: list[float], share: float) -> float:
    """Return the smallest of the sorted values that is not below this share of them."""
    return values[max(0, -int(-share * len(values) // 1) - 1)]
