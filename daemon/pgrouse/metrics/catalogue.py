"""Every metric: its name, its kind, its labels and what it means. docs/reference/metrics.md lists them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class MetricKind(StrEnum):
    """The kinds of metrics that there are here."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True)
class MetricDefinition:
    """One metric.

    Attributes:
        name: as Prometheus shows it, with its unit; of histograms without the suffix of a series.
        help: what it means, in one sentence.
        labels: their names, in order.
    """

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()


def _counter(name: str, meaning: str, *labels: str) -> MetricDefinition:
    return MetricDefinition(name, MetricKind.COUNTER, meaning, labels)


def _gauge(name: str, meaning: str, *labels: str) -> MetricDefinition:
    return MetricDefinition(name, MetricKind.GAUGE, meaning, labels)


def _histogram(name: str, meaning: str, *labels: str) -> MetricDefinition:
    return MetricDefinition(name, MetricKind.HISTOGRAM, meaning, labels)


# Metrics of one daemon process.
BUILD_INFO = _gauge(
    "pgrouse_build_info", "Always 1; which version this is, and the name of the worker.", "version", "worker"
)
MESSAGES = _counter("pgrouse_messages_total", "Attempts that ended, by how.", "topic", "result")
WAIT = _histogram("pgrouse_queue_wait_seconds", "From available to claimed, by the server's clock.", "topic")
RUN = _histogram("pgrouse_handler_duration_seconds", "Calls of handlers; one that takes a batch counts once.", "topic")
WAKE = _histogram(
    "pgrouse_wake_seconds", "The waits of messages that came while the daemon slept and a notification woke it."
)
CLAIMS = _counter("pgrouse_claims_total", "Claims, by why they were made.", "source")
CLAIMED = _counter("pgrouse_claimed_messages_total", "Messages that claims brought, by why they were made.", "source")
MISSED = _counter(
    "pgrouse_notifications_missed_total",
    "Messages that came while the daemon slept, and that it found by polling, more than a second late.",
    "topic",
)
LOST = _counter("pgrouse_locks_lost_total", "Attempts that lost their lock before they ended, or were cancelled.")
LISTENER = _gauge("pgrouse_listener_connected", "1 while notifications are known to arrive, else 0.")
CONNECTS = _counter(
    "pgrouse_connections_opened_total", "Connections to PostgreSQL that were opened, by what for.", "role"
)
IN_FLIGHT = _gauge("pgrouse_in_flight", "Messages in flight: claimed and not settled yet.")
RUNNING = _gauge("pgrouse_handlers_running", "Handlers that run now; one that has a batch counts once.")
LIMIT = _gauge("pgrouse_concurrency", "How many handlers may run at once, without batches.")
HEARTBEAT_AGE = _gauge("pgrouse_heartbeat_age_seconds", "Time since the last heartbeat that the database stored.")
LOOP_LAG = _gauge("pgrouse_event_loop_lag_seconds", "For how long the event loop has not answered; 0 if it does.")
DRAINING = _gauge("pgrouse_draining", "1 once the daemon is stopping, else 0.")

DAEMON = (
    BUILD_INFO, MESSAGES, WAIT, RUN, WAKE, CLAIMS, CLAIMED, MISSED, LOST, LISTENER, CONNECTS, IN_FLIGHT, RUNNING, LIMIT,
    HEARTBEAT_AGE, LOOP_LAG, DRAINING,
)  # fmt: skip

# Metrics of the whole queue, from the database: the web server serves them.
DATABASE_UP = _gauge(
    "pgrouse_database_up", "1 if the database answers, else 0; then there are no other metrics of the queue."
)
DEPTH = _gauge(
    "pgrouse_queue_messages", "Messages that are there, by state; counted up to 10000 of each.", "topic", "state"
)
OLDEST = _gauge("pgrouse_queue_oldest_ready_seconds", "How long the oldest ready message has been ready.", "topic")
DEAD = _gauge(
    "pgrouse_queue_dead_messages",
    "Messages that died in the last 24 hours and were not redriven.",
    "topic",
)
DIED = _counter("pgrouse_dead_messages_total", "Messages that ever died, by how; it never falls.", "topic", "result")
STOPPED = _gauge("pgrouse_queue_stopped", "1 if the topic is paused or its breaker is open, else 0.", "topic")
NOTIFY = _gauge("pgrouse_queue_notify", "0 if the policy of the topic has notify = off, else 1.", "topic")
HANDLED = _gauge("pgrouse_queue_handled", "1 if a worker that was seen in the last minute works it, else 0.", "topic")
WORKERS = _gauge("pgrouse_workers", "Workers in the registry, by state.", "state")
TICK_AGE = _gauge("pgrouse_tick_age_seconds", "Since the last run of the maintenance, by who ran it.", "caller")
ALERTS = _gauge(
    "pgrouse_alerts_undelivered", "Messages about alerts that a sink has not taken yet; counted up to 10000."
)
ALERTS_AGE = _gauge("pgrouse_alerts_oldest_undelivered_seconds", "How old the oldest of them is; 0 if there is none.")
CONDITIONS = _gauge(
    "pgrouse_condition",
    "Always 1, for each thing that is wrong by the thresholds of alerts.",
    *("kind", "topic", "severity"),
)
NOTIFY_QUEUE = _gauge("pgrouse_notify_queue_usage_ratio", "How full PostgreSQL's notification queue is, from 0 to 1.")
SNAPSHOT_AGE = _gauge(
    "pgrouse_oldest_snapshot_seconds",
    "For how long the oldest transaction has kept vacuum from removing rows; missing without pg_read_all_stats.",
)
SCHEDULE_LAST = _gauge(
    "pgrouse_schedule_last_run_timestamp_seconds",
    "When a schedule last published, as Unix time; missing if it never did.",
    *("schedule", "topic"),
)
SCHEDULE_NEXT = _gauge(
    "pgrouse_schedule_next_run_timestamp_seconds",
    "When a schedule is due next, as Unix time; missing if it is paused or over.",
    *("schedule", "topic"),
)
EXPORTS_HELD = _gauge("pgrouse_retention_held_exports", "Exports for which the retention of the archive waits.")

QUEUE = (
    DATABASE_UP, DEPTH, OLDEST, DEAD, DIED, STOPPED, NOTIFY, HANDLED, WORKERS, TICK_AGE, ALERTS, ALERTS_AGE, CONDITIONS,
    NOTIFY_QUEUE, SNAPSHOT_AGE, SCHEDULE_LAST, SCHEDULE_NEXT, EXPORTS_HELD,
)  # fmt: skip
