"""isolation = "process": what a handler does to its process affects no other message."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
from psycopg.types.json import Jsonb

from tests.daemon.endpoint import ANY_PORT, Endpoint
from tests.daemon.process import Daemon, Journal
from tests.server.alive import lives
from tests.server.deadline import eventually
from tests.sql.queue import Queue

Start = Callable[..., Daemon]


def apart(handler: str, size: int = 1) -> dict[str, object]:
    return {"handler": handler, "isolation": "process", "concurrency": size}


def test_a_child_that_dies_fails_its_message_and_the_others_continue(
    start: Start, queue: Queue, journal: Journal
) -> None:
    queue.policy("job", backoff={"kind": "none"})
    daemon = start({"job": apart("hostile:die", 2), "other": "holding:hold"})
    other = queue.publish("other")
    journal.entry("start", other)

    attempts = {"segfault": 2, "os._exit(7)": 1, "kill -9": 1, "os._exit(0)": 1}
    dying = {how: queue.publish("job", payload=Jsonb(how), max_attempts=most) for how, most in attempts.items()}
    fine = [queue.publish("job", payload=Jsonb("live")) for _ in range(4)]

    results = {how: eventually(lambda each=each: queue.archived(each), within_s=90) for how, each in dying.items()}
    assert {each.result for each in results.values()} == {"failed"}
    assert {how: each.attempts for how, each in results.items()} == attempts
    assert "exit code -11" in results["segfault"].error
    assert {eventually(lambda each=each: queue.archived(each)).result for each in fine} == {"success"}
    assert daemon.event("child.died", message_id=dying["segfault"], exit_code=-11)
    assert queue.message(other).attempts == 1
    daemon.open_gate()
    assert eventually(lambda: queue.archived(other)).result == "success"


@pytest.mark.long
def test_children_that_die_while_idle_are_replaced(start: Start, queue: Queue) -> None:
    start({"job": apart("hostile:leak")})
    first = queue.publish("job")
    child = eventually(lambda: queue.archived(first)).output

    os.kill(child, signal.SIGKILL)

    queue.policy("job", max_attempts=3, backoff={"kind": "none"})
    second = queue.publish("job")
    archived = eventually(lambda: queue.archived(second))
    assert archived.result == "success"
    assert archived.output != child


@pytest.mark.long
def test_a_message_whose_child_dies_before_it_reports_the_start_fails_with_that_error(
    start: Start, queue: Queue
) -> None:
    """It is unknown whether its handler began: it counts as an attempt in which the child died."""
    daemon = start({"job": apart("hostile:leak")}, sections=ANY_PORT)
    endpoint = Endpoint(daemon)
    first = queue.publish("job")
    child = eventually(lambda: queue.archived(first)).output
    os.kill(child, signal.SIGSTOP)
    second = queue.publish("job")
    eventually(lambda: endpoint.value("pgrouse_handlers_running") == 1)

    os.kill(child, signal.SIGKILL)

    archived = eventually(lambda: queue.archived(second))
    assert (archived.result, archived.attempts) == ("failed", 1)
    assert "before it could report whether the handler had started" in archived.error
    assert daemon.event("child.died", message_id=second)["topic"] == "job"
    third = queue.publish("job")
    assert eventually(lambda: queue.archived(third)).result == "success"


@pytest.mark.long
def test_a_child_is_replaced_after_a_thousand_messages(start: Start, queue: Queue) -> None:
    start({"job": apart("hostile:leak")}, concurrency=100)

    queue.publish_many(1100, "job")

    eventually(lambda: queue.ids() == [], within_s=90)
    children = {row.output for row in queue.rows("SELECT output FROM messages.message_archive")}
    assert len(children) == 2


@pytest.mark.long
def test_a_handler_that_cannot_be_imported_in_its_child_fails_only_its_messages(
    start: Start, queue: Queue, journal: Journal
) -> None:
    queue.policy("job", max_attempts=2, backoff={"kind": "none"})
    daemon = start({"job": apart("daemon_only:work", 2), "other": "work:echo"}, concurrency=3)

    failing = queue.publish_many(2, "job")
    other = queue.publish("other")

    journal.entry("start", other)
    eventually(lambda: all(queue.archived(each) for each in failing), within_s=90)
    assert {queue.archived(each).result for each in failing} == {"failed"}
    assert {queue.archived(each).attempts for each in failing} == {2}
    assert daemon.stop() == 0


@pytest.mark.long
def test_a_cancelled_message_ends_its_child(start: Start, queue: Queue, journal: Journal) -> None:
    start({"job": apart("holding:hold_in_process")})
    published = queue.publish("job")
    child = journal.entry("start", published)["pid"]

    queue.call("cancel", [published])

    eventually(lambda: not lives(child))
    assert queue.archived(published).result == "cancelled"


@pytest.mark.long
def test_a_process_that_a_handler_forks_exits_with_its_own_code(start: Start, queue: Queue) -> None:
    start({"job": apart("hostile:fork_and_leave")})

    published = queue.publish("job")

    assert eventually(lambda: queue.archived(published), within_s=90).output == [0, 3]
