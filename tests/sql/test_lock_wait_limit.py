"""messages.lock_wait_limit: every wait that other sessions can prolong is bounded."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue


@pytest.mark.parametrize(("own", "waits"), [("0", "10s"), ("1ms", "1ms"), ("10min", "10min")])
def test_lock_timeout_of_the_session_applies_and_otherwise_ten_seconds(queue: Queue, own: str, waits: str) -> None:
    queue.value("SELECT set_config('lock_timeout', %s, false)", [own])

    assert queue.call("lock_wait_limit") == waits
