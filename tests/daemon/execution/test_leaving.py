"""Handlers that cancel their own task, exit from a task that they started, or leave endless tasks behind."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from psycopg.types.json import Jsonb

from tests.daemon.process import Daemon, Journal
from tests.server.deadline import eventually
from tests.sql.queue import Queue

Start = Callable[..., Daemon]

# More than the threads of an event loop on most machines.
MANY = 40


def test_a_handler_that_cancels_its_own_task_fails_its_message_and_frees_its_slot(start: Start, queue: Queue) -> None:
    topics = {"job": "leaving:cancel_itself", "fine": "work:echo"}
    daemon = start({**topics, "bulk": {"handler": "leaving:cancel_itself_in_a_batch", "batch_size": 2}}, concurrency=1)

    ended = {}
    for does in ("raise", "swallow", "return"):
        published = queue.publish("job", payload=Jsonb(does))
        ended[does] = eventually(lambda each=published: queue.archived(each))  # type: ignore[misc]
        fine = queue.publish("fine")
        assert eventually(lambda each=fine: queue.archived(each)).result == "success"  # type: ignore[misc]
    bulk = [queue.publish("bulk") for _ in range(3)]

    assert {does: row.result for does, row in ended.items()} == {
        "raise": "failed",
        "swallow": "success",
        "return": "success",
    }
    assert "in cancel_itself" in ended["raise"].error
    assert [eventually(lambda each=each: queue.archived(each)).result for each in bulk] == ["failed"] * 3
    assert daemon.stop() == 0


def test_a_handler_that_cancels_all_tasks_ends_the_daemon_at_once_with_an_error(start: Start, queue: Queue) -> None:
    daemon = start({"job": "leaving:cancel_everything"})

    queue.publish("job")

    assert daemon.exit_code() == 1
    assert daemon.event("loop.crashed")["level"] == "critical"


@pytest.mark.parametrize(
    ("handler", "result"), [("exit_in_a_task", "failed"), ("exit_in_a_task_of_its_own", "success")]
)
def test_sys_exit_in_a_task_of_a_handler_is_logged_and_drains_the_daemon_as_a_failure(
    start: Start, queue: Queue, journal: Journal, handler: str, result: str
) -> None:
    daemon = start({"exit": f"leaving:{handler}", "hold": "holding:hold"})
    held = queue.publish("hold")
    journal.entry("start", held)

    exiting = queue.publish("exit")
    event = daemon.event("handler.exited")
    daemon.event("daemon.stopping")
    late = queue.publish("hold")
    daemon.open_gate()

    assert daemon.exit_code() == 1
    assert (event["level"], "in _exit" in event["exception"]) == ("critical", True)
    assert queue.archived(held).result == "success"
    assert queue.archived(exiting).result == result
    assert (queue.message(late).attempts, queue.message(late).claim_id) == (0, None)
    assert len(daemon.events("daemon.stopped")) == 1
    assert queue.value("SELECT count(*) FROM messages.worker") == 0


@pytest.mark.long
def test_a_handler_that_exits_in_its_own_process_fails_only_its_message(start: Start, queue: Queue) -> None:
    names = ("cancel_itself", "cancel_everything", "exit_in_a_task")
    daemon = start({"job": {"handler": "leaving:leave_by", "isolation": "process", "concurrency": 1}})

    published = [queue.publish("job", payload=Jsonb(name)) for name in names]

    assert [eventually(lambda each=each: queue.archived(each)).result for each in published] == ["failed"] * 3
    assert daemon.alive
    assert daemon.events("child.died") == []


LEAVING = {
    "wait": "leaving:wait_for_a_thread",
    "task": "leaving:leave_a_task",
    "thread": "leaving:leave_a_thread",
    "fine": "work:echo",
}


def leave_much(queue: Queue, journal: Journal) -> list[int]:
    """Make handlers start everything that does not end; return the messages whose handlers wait for it."""
    left = [queue.publish(topic) for topic in ("task", "thread")]
    waiting = queue.publish_many(MANY, "wait")
    eventually(lambda: all(journal.entries("start", each) for each in waiting))
    eventually(lambda: all(queue.archived(each) for each in left))
    return waiting


@pytest.mark.long
def test_a_task_that_a_handler_left_behind_does_not_delay_the_stop(
    start: Start, queue: Queue, journal: Journal
) -> None:
    daemon = start(LEAVING, shutdown_timeout="0.1s")
    waiting = leave_much(queue, journal)

    assert daemon.stop() == 0

    assert len(daemon.events("daemon.stopped")) == 1
    assert {(queue.message(each).attempts, queue.message(each).claim_id) for each in waiting} == {(0, None)}


@pytest.mark.long
def test_a_task_that_a_handler_left_behind_does_not_delay_a_reload(
    start: Start, queue: Queue, journal: Journal
) -> None:
    daemon = start(LEAVING, shutdown_timeout="0.1s")
    leave_much(queue, journal)

    daemon.send(signal.SIGHUP)
    eventually(lambda: len(daemon.events("daemon.started")) == 2)

    assert journal.entry("start", queue.publish("fine"))["pid"] == daemon.pid
    assert daemon.stop() == 0
