"""Lost notifications and disconnected listeners cost only a little time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.daemon.process import AT_ONCE_S, Daemon, Journal, now, until_armed
from tests.server.deadline import eventually
from tests.sql.queue import Queue

Start = Callable[..., Daemon]

LISTENERS = (
    "SELECT pid FROM pg_stat_activity "
    "WHERE datname = current_database() AND starts_with(application_name, 'pgrouse listener')"
)


@pytest.mark.every_server
def test_a_message_whose_notification_was_lost_is_found_by_the_poll(
    start: Start, queue: Queue, journal: Journal, listen: Callable[..., Any]
) -> None:
    start({"job": "work:echo"}, poll_interval="1s")
    listener = listen("new_message")

    queue.conn.execute("ALTER TABLE messages.message DISABLE TRIGGER new_message")
    published = queue.publish("job")

    assert eventually(lambda: journal.entries("start", published), within_s=AT_ONCE_S)
    assert listener.received() == []


def test_a_listener_that_was_disconnected_gets_notifications_long_before_the_next_poll(
    start: Start, queue: Queue, journal: Journal
) -> None:
    daemon = start({"job": "work:echo"}, degraded_poll_interval="60s")
    before, flag = queue.value(LISTENERS), queue.value("SELECT xmin::text FROM messages.sleeper")

    queue.conn.execute("SELECT pg_terminate_backend(%s)", [before])

    eventually(lambda: queue.value("SELECT xmin::text FROM messages.sleeper") != flag, within_s=AT_ONCE_S)
    until_armed(queue.conn, daemon)
    assert [row.pid for row in queue.rows(LISTENERS)] not in ([], [before])
    began = now()
    assert journal.entry("start", queue.publish("job"))["at"] - began < AT_ONCE_S


def test_a_message_published_without_a_listener_is_found_when_the_listener_reconnects(
    start: Start, queue: Queue, journal: Journal
) -> None:
    start({"job": "work:echo"}, degraded_poll_interval="60s")

    with queue.conn.transaction():
        queue.conn.execute(f"SELECT pg_terminate_backend(pid) FROM ({LISTENERS}) AS listener")
        published = queue.publish("job")

    assert eventually(lambda: journal.entries("start", published), AT_ONCE_S)


def test_a_foreign_notification_is_only_a_hint(start: Start, queue: Queue, journal: Journal) -> None:
    daemon = start({"job": "work:echo"})
    done = queue.publish("job")
    eventually(lambda: queue.archived(done))

    for channel in ("new_message", "cancelled", "topic_changed"):
        for payload in (str(done), "job", "", "999999999999999999999", "'; drop table messages.message; --"):
            queue.conn.execute("SELECT pg_notify(%s, %s)", [channel, payload])

    published = queue.publish("job")
    eventually(lambda: queue.archived(published))
    assert len(journal.entries("start")) == 2
    found = {e["event"] for e in daemon.logged() if e.get("level") in ("warning", "error", "critical")}
    about_the_machine = {
        "event_loop.blocked",
        "heartbeat.failed",
        "listener.degraded",
        "metrics.report_failed",
        "registry.update_failed",
    }
    assert found <= about_the_machine
