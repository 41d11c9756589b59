"""Delayed messages: the daemon wakes up for each at its time, without a notification."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest

from tests.daemon.process import AT_ONCE_S, Daemon, Journal, now
from tests.server.deadline import eventually
from tests.sql.queue import Queue

Start = Callable[..., Daemon]


def late_s(queue: Queue, journal: Journal, published: int, due: datetime) -> float:
    """How long after its time a message was started, by two clocks.

    The round trip between them counts as late, never as early.
    """
    started = journal.entry("start", published)["at"]
    asked = now()
    passed = queue.value("SELECT extract(epoch FROM clock_timestamp() - %s)::float8", [due])
    return float(passed) - (asked - started)


def test_a_delayed_message_is_started_at_its_time(start: Start, queue: Queue, journal: Journal) -> None:
    due = {
        each: queue.message(each).available_at
        for each in (queue.publish("job", wait="3 s"), queue.publish("job", wait="4 s"))
    }

    start({"job": "work:echo"})

    for published, at in due.items():
        assert 0 <= late_s(queue, journal, published, at) < AT_ONCE_S


def test_a_message_published_while_the_daemon_sleeps_and_due_before_the_poll_is_on_time(
    start: Start, queue: Queue, journal: Journal
) -> None:
    start({"job": "work:echo"})

    published = queue.publish("job", wait="0.7 s")
    due = queue.message(published).available_at

    assert 0 <= late_s(queue, journal, published, due) < AT_ONCE_S


@pytest.mark.long
def test_a_message_due_after_the_next_poll_sends_no_notification_and_is_on_time(
    start: Start, queue: Queue, journal: Journal, listen: Callable[..., Any]
) -> None:
    start({"job": "work:echo"}, poll_interval="0.5s")
    listener = listen("new_message")

    published = queue.publish("job", wait="1.5 s")
    due = queue.message(published).available_at

    assert 0 <= late_s(queue, journal, published, due) < AT_ONCE_S
    assert listener.received() == []


@pytest.mark.long
def test_retries_are_started_when_their_backoff_is_over(start: Start, queue: Queue, journal: Journal) -> None:
    queue.policy("job", max_attempts=4, backoff={"kind": "exponential", "base": "200 ms", "jitter": "0"})
    start({"job": "work:act"})

    published = queue.publish("job", payload={"do": "raise"})

    eventually(lambda: queue.archived(published))
    started = [e["at"] for e in journal.entries("start", published)]
    waited = [after - before for before, after in pairwise(started)]
    assert len(waited) == 3
    assert all(wanted <= each < wanted + AT_ONCE_S for each, wanted in zip(waited, (0.2, 0.4, 0.8), strict=True))


@pytest.mark.long
def test_a_due_message_that_another_session_has_locked_is_awaited_without_spinning(
    start: Start, queue: Queue, journal: Journal
) -> None:
    daemon = start({"job": "work:echo"})
    published = queue.publish("job", wait="3 s")

    with queue.conn.transaction():
        due = queue.value("SELECT available_at FROM messages.message WHERE id = %s FOR UPDATE", [published])
        eventually(lambda: queue.value("SELECT clock_timestamp() > %s", [due]))
        began, used = now(), daemon.cpu_s()
        eventually(lambda: now() - began > 1)
        busy = (daemon.cpu_s() - used) / (now() - began)
        assert journal.entries("start") == []
    unlocked = now()

    assert journal.entry("start", published)["at"] - unlocked < AT_ONCE_S
    assert busy < 0.4
