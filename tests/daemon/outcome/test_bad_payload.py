"""Unusual payloads: refused when they are published, or rejected alone, or processed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from psycopg import sql

from tests.daemon.process import Daemon, Journal
from tests.server.deadline import eventually
from tests.sql.queue import Queue

Start = Callable[..., Daemon]

REJECTED = {
    "nested a thousand deep": "[" * 1000 + "]" * 1000,
    "an integer of 4301 digits": "1" * 4301,
    "an integer of 100,000 digits": '{"n": ' + "9" * 100_000 + "}",
}
HANDLED = {
    "1e400": ("1e400", 10**400),
    "1e-400": ("1e-400", 0.0),
    "duplicate keys": ('{"a": 1, "a": 2}', {"a": 2}),
    "a long string": ('"' + "é" * 1_000_000 + '"', None),
    "looks like SQL": ('"\'; drop table messages.message; --"', "'; drop table messages.message; --"),
    "control characters": (r'"\u0001\u001f\u007f\u2028"', "\x01\x1f\x7f\u2028"),
}


def ended(queue: Queue, message_id: int) -> Any:
    """Wait for the end of a message and return how it arrived; its payload would break this client, too."""
    return eventually(
        lambda: queue.row("SELECT result, error, attempts FROM messages.message_archive WHERE id = %s", [message_id])
    )


def publish_all(queue: Queue, payloads: dict[str, str]) -> dict[str, int]:
    """Publish in one statement, so that one claim gets them all."""
    rows = sql.SQL(", ").join(sql.SQL("('job', {}::jsonb)").format(text) for text in payloads.values())
    inserted = queue.conn.execute(
        sql.SQL("INSERT INTO messages.message (topic, payload) VALUES {} RETURNING id").format(rows)
    )
    return dict(zip(payloads, (published for (published,) in inserted), strict=True))


@pytest.mark.parametrize("handler", ["work:measure", "work:measure_in_thread"])
def test_a_payload_that_python_cannot_hold_is_rejected_alone(
    start: Start, queue: Queue, journal: Journal, handler: str
) -> None:
    queue.policy("job", max_attempts=5)
    daemon = start({"job": handler})
    payloads = {
        "before": '"before"',
        **REJECTED,
        **{name: text for name, (text, _) in HANDLED.items()},
        "after": '"after"',
    }

    published = publish_all(queue, payloads)

    rows = {name: ended(queue, each) for name, each in published.items()}
    assert {name for name, row in rows.items() if row.result != "success"} == set(REJECTED)
    assert {rows[name].result for name in REJECTED} == {"rejected"}
    assert all(rows[name].error.startswith("payload cannot be decoded: ") for name in REJECTED)
    assert {row.attempts for row in rows.values()} == {1}
    assert daemon.events("loop.failed") == []


def test_unusual_payloads_arrive_unchanged(start: Start, queue: Queue, journal: Journal) -> None:
    start({"job": "work:describe"})

    published = publish_all(queue, {name: text for name, (text, _) in HANDLED.items()})

    for name, (_, value) in HANDLED.items():
        if value is not None:
            assert journal.entry("got", published[name])["repr"] == repr(value), name


def test_headers_and_state_that_python_cannot_hold_fail_the_handler_that_reads_them(
    start: Start, queue: Queue, journal: Journal
) -> None:
    start({"job": "work:return_context", "other": "work:echo"})
    too_long = sql.SQL("('{{\"n\": ' || repeat('9', 5000) || '}}')::jsonb").format()

    reads = queue.publish("job", headers=too_long)
    does_not = queue.publish("other", headers=too_long, state=too_long)

    assert ended(queue, reads).result == "failed"
    assert ended(queue, does_not).result == "success"
