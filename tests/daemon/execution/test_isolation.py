"""isolation = "process": what a handler does to its process affects no other message."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from psycopg.types.json import Jsonb

from tests.daemon.process import Daemon, Journal
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
def test_a_process_that_a_handler_forks_exits_with_its_own_code(start: Start, queue: Queue) -> None:
    start({"job": apart("hostile:fork_and_leave")})

    published = queue.publish("job")

    assert eventually(lambda: queue.archived(published), within_s=90).output == [0, 3]
