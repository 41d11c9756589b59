"""messages.schedule_state: every schedule with its state."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ("failures = 0", "on"),
        ("failures = 1", "failing"),
        ("next_tick = NULL", "over"),
        ("failures = 1, paused_at = now()", "paused"),
    ],
)
def test_a_pause_comes_before_an_error_and_an_error_before_the_end(queue: Queue, change: str, state: str) -> None:
    queue.schedule("s", "@daily")
    with queue.conn.transaction():
        # The trigger would set next_tick again.
        queue.conn.execute("SET LOCAL session_replication_role = replica")
        queue.conn.execute(f"UPDATE messages.schedule SET {change}".encode())

    assert queue.value("SELECT state FROM messages.schedule_state") == state
