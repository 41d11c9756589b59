"""messages.worker_state: who is alive, who handles, and in which state each worker is."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue


def add(queue: Queue, name: str, kind: str, seen: str, change: str = "") -> None:
    queue.conn.execute(
        """INSERT INTO messages.worker (name, host, pid, version, topics, concurrency, kind, seen_at)
           VALUES (%s, 'h', 1, '1', '{t}', 4, %s, clock_timestamp() - %s::interval)""",
        [name, kind, seen],
    )
    if change:
        queue.conn.execute(f"UPDATE messages.worker SET {change} WHERE name = %s".encode(), [name])


@pytest.mark.parametrize(
    ("kind", "seen", "change", "expected"),
    [
        ("daemon", "20 s", "", (True, "working", True)),
        ("daemon", "20 s", "drain_asked_at = now()", (True, "draining", True)),
        ("daemon", "20 s", "drain_asked_at = now(), stopping = true", (True, "stopping", False)),
        ("daemon", "31 s", "", (False, "silent", False)),
        ("daemon", "31 s", "stopping = true", (False, "silent", False)),
        ("http", "110 s", "", (True, "working", True)),
        ("http", "121 s", "", (False, "gone", False)),
    ],
)
def test_a_worker_is_alive_as_long_as_one_of_its_kind_reports(
    queue: Queue, kind: str, seen: str, change: str, expected: tuple[bool, str, bool]
) -> None:
    add(queue, "w", kind, seen, change)

    row = queue.row("SELECT alive, state, handles FROM messages.worker_state")

    assert (row.alive, row.state, row.handles) == expected


def test_the_number_of_handlers_is_what_it_was_scaled_to(queue: Queue) -> None:
    add(queue, "w", "daemon", "0 s", "requested_concurrency = 9, status = jsonb_build_object('listener', 'degraded')")

    row = queue.row("SELECT concurrency, configured_concurrency, listener FROM messages.worker_state")

    assert (row.concurrency, row.configured_concurrency, row.listener) == (9, 4, "degraded")
