"""Handlers that use Django's connections, when a connection is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.daemon.process import Daemon
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

Start = Callable[..., Daemon]
HANDLERS: dict[str, Any] = {
    "thread": "django_connections:in_thread",
    "loop": "django_connections:on_the_loop",
    "process": {"handler": "django_connections:in_process", "isolation": "process", "concurrency": 1},
    "batch": {"handler": "django_connections:in_batch", "batch_size": 1},
    "async batch": {"handler": "django_connections:in_async_batch", "batch_size": 1},
}


@pytest.mark.parametrize("kind", HANDLERS)
def test_a_lost_connection_costs_one_attempt_at_most(start: Start, queue: Queue, database: Database, kind: str) -> None:
    start({"job": HANDLERS[kind]}, environ={"RUNS": database.dsn}, threads=1)

    def work() -> Any:
        published = queue.publish("job")
        return eventually(lambda: queue.archived(published), 60)

    first, second = work(), work()
    assert (first.result, second.result) == ("success", "success")
    assert first.output == second.output, "a connection that is sound is kept"
    for _ in range(2):
        assert queue.value("SELECT pg_terminate_backend(%s, 30000)", [second.output])
        work()
        second = work()
        assert second.result == "success", second.error
