"""Handlers that block, hang, run too long or ignore their cancellation: the daemon and the other messages continue."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from psycopg.types.json import Jsonb

from tests.daemon.locks import LOCKS_ARE_NEVER_ENDED, is_kept
from tests.daemon.process import Daemon, Journal
from tests.server.deadline import eventually
from tests.sql.queue import Queue

Start = Callable[..., Daemon]


@pytest.mark.long
def test_a_handler_that_blocks_the_event_loop_is_logged_and_costs_no_other_message_its_lock(
    start: Start, queue: Queue, journal: Journal
) -> None:
    queue.policy("*", lock_duration="1.5 s")
    daemon = start({"block": "hostile:block_until_gate", "hold": "holding:hold"}, **LOCKS_ARE_NEVER_ENDED)
    held = queue.publish("hold")
    journal.entry("start", held)

    blocking = queue.publish("block")
    journal.entry("start", blocking)
    # Longer than a block may last without being logged.
    assert is_kept(queue, held, timedelta(seconds=1.5), times=2)
    daemon.open_gate()

    assert eventually(lambda: queue.archived(held)).result == "success"
    assert eventually(lambda: queue.archived(blocking)).result == "success"
    assert {queue.archived(each).attempts for each in (held, blocking)} == {1}
    assert "isolation" in daemon.event("event_loop.blocked")["fix"]


@pytest.mark.parametrize("handler", ["holding:hold", "holding:hold_in_thread", "process"])
def test_a_handler_that_runs_longer_than_its_timeout_ends_as_an_expired_lock(
    start: Start, queue: Queue, journal: Journal, handler: str
) -> None:
    in_process = {"handler": "hostile:hang", "isolation": "process"}
    queue.policy("job", timeout="0.5 s")
    daemon = start({"job": in_process if handler == "process" else handler, "fine": "work:echo"})

    published = queue.publish("job")

    archived = eventually(lambda: queue.archived(published))
    assert (archived.result, archived.attempts) == ("lock_expired", 1)
    assert "timeout of 0.5 s" in archived.error
    assert daemon.event("attempt.timed_out", message_id=published)["attempt"] == 1
    journal.entry("start", queue.publish("fine"))


@pytest.mark.long
def test_a_message_that_waits_for_a_thread_does_not_use_up_its_timeout(
    start: Start, queue: Queue, journal: Journal
) -> None:
    queue.policy("timed", timeout="3 s")
    daemon = start({"long": "holding:hold_in_thread", "timed": "work:echo_in_thread"}, threads=1)
    journal.entry("start", queue.publish("long"))
    timed = queue.publish("timed")
    claimed_at = eventually(lambda: queue.message(timed).locked_at)

    eventually(lambda: queue.value("SELECT clock_timestamp() - %s > interval '4 s'", [claimed_at]))
    daemon.open_gate()

    assert eventually(lambda: queue.archived(timed)).result == "success"


def test_a_thread_that_cannot_be_stopped_keeps_its_slot_until_it_ends(
    start: Start, queue: Queue, journal: Journal
) -> None:
    queue.policy("job", timeout="0.2 s")
    daemon = start({"job": {"handler": "holding:hold_in_thread", "concurrency": 1}, "fine": "work:echo"})
    first = queue.publish("job", payload=Jsonb("first"))
    eventually(lambda: queue.archived(first))
    queue.policy("job", timeout="1 hour")

    second = queue.publish("job", payload=Jsonb("second"))
    journal.entry("start", queue.publish("fine"))
    assert queue.message(second).claim_id is None
    daemon.open_gate("second")
    daemon.open_gate("first")

    assert eventually(lambda: queue.archived(second)).result == "success"


def test_a_coroutine_that_swallows_its_cancellation_ends_with_its_own_result(
    start: Start, queue: Queue, journal: Journal
) -> None:
    queue.policy("swallow", timeout="0.2 s")
    daemon = start({"swallow": "hostile:swallow", "next": "hostile:use_task_group"}, concurrency=1)
    published = queue.publish("swallow")
    journal.entry("cancelled", published)

    daemon.open_gate()

    assert eventually(lambda: queue.archived(published)).output == "in spite of all"
    following = [queue.publish("next") for _ in range(3)]
    assert [eventually(lambda each=each: queue.archived(each)).output for each in following] == ["handled"] * 3


def test_an_exception_caused_by_the_stop_is_not_the_handlers_failure(
    start: Start, queue: Queue, journal: Journal
) -> None:
    daemon = start({"job": "hostile:fail_when_cancelled"}, shutdown_timeout="0.1s")
    published = queue.publish("job")
    journal.entry("start", published)

    daemon.stop()

    assert (queue.message(published).attempts, queue.message(published).claim_id) == (0, None)
