"""The views of the states of messages."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.sql.queue import Queue

# state: The view messages.state: every message with one name for its state.


def state(queue: Queue, message_id: int) -> Any:
    return queue.row("SELECT * FROM messages.state WHERE id = %s", [message_id])


def test_a_live_message_is_ready_delayed_running_or_retrying(queue: Queue) -> None:
    delayed = queue.publish(wait="1 hour")
    running, failed, expired, deferred = (queue.publish(max_attempts=2) for _ in range(4))
    claims = queue.claim()
    queue.settle("retry", [claims[1]], ["boom"], [timedelta(hours=1)])
    queue.settle("retry", [claims[2]], ["boom"], [timedelta(hours=1)], result="lock_expired")
    queue.settle("defer", [claims[3]], [timedelta(hours=1)])
    ready = queue.publish()

    states = {m: state(queue, m).state for m in (ready, delayed, running, failed, expired, deferred)}

    assert list(states.values()) == ["ready", "delayed", "running", "retrying", "retrying", "delayed"]


def test_a_running_message_has_its_worker_and_the_end_of_its_lock(queue: Queue) -> None:
    running = queue.publish()
    queue.claim(worker="host-1")

    row = state(queue, running)

    assert (row.locked_by, row.lock_expires_at) == ("host-1", queue.message(running).lock_expires_at)


def test_an_archived_message_has_its_result_as_its_state(queue: Queue) -> None:
    succeeded, rejected = queue.publish(), queue.publish()
    claims = queue.claim()
    queue.settle("complete", claims[:1])
    queue.settle("reject", claims[1:], ["bad"])
    cancelled = queue.publish()
    queue.call("cancel", [cancelled])

    assert [state(queue, m).state for m in (succeeded, rejected, cancelled)] == ["success", "rejected", "cancelled"]
    assert (state(queue, rejected).error, state(queue, rejected).archived_at is None) == ("bad", False)


def test_every_message_is_in_the_view_exactly_once(queue: Queue) -> None:
    published = queue.publish_many(10)
    queue.settle("complete", queue.claim(limit=4))
    queue.claim(limit=3)

    assert [row.id for row in queue.rows("SELECT id FROM messages.state ORDER BY id")] == published


# ended: The view messages.ended: how each message ended, and how long that took.


def test_it_has_every_ended_message_once_and_says_which_are_dead(queue: Queue) -> None:
    succeeded, rejected, waiting = queue.publish(), queue.publish(), queue.publish(wait="1 hour")
    claims = queue.claim()
    queue.settle("complete", claims[:1])
    queue.settle("reject", claims[1:], ["bad"])
    cancelled = queue.publish()
    queue.call("cancel", [cancelled])

    rows = queue.rows("SELECT id, result, is_dead, error FROM messages.ended ORDER BY id")

    assert rows == [
        (succeeded, "success", False, None),
        (rejected, "rejected", True, "bad"),
        (cancelled, "cancelled", False, "cancelled"),
    ]
    assert waiting not in [row.id for row in rows]


ARCHIVED = """
    INSERT INTO messages.message_archive (
      id, topic, priority, payload, created_at, available_at, attempts, result, locked_at, archived_at)
    VALUES (%s, 't', 5, '{}', '2026-03-01 10:00:00Z', '2026-03-01 10:00:10Z', %s,
    'success', '2026-03-01 10:00:12.5Z', '2026-03-01 10:00:20Z')"""


@pytest.mark.parametrize(
    ("attempts", "total_s"),
    [(1, 10), (2, 20)],
    ids=["from when it was due", "after a retry, from when it was published"],
)
def test_it_measures_the_last_attempt_and_the_whole(queue: Queue, attempts: int, total_s: int) -> None:
    queue.conn.execute(ARCHIVED, [7, attempts])

    row = queue.row("SELECT wait_s, run_s, total_s FROM messages.ended WHERE id = 7")

    assert row == (2.5, 7.5, total_s)


def test_a_message_that_never_ran_neither_waited_nor_ran(queue: Queue) -> None:
    message = queue.publish()
    queue.call("cancel", [message])

    row = queue.row("SELECT * FROM messages.ended WHERE id = %s", [message])

    assert (row.wait_s, row.run_s) == (None, None)


# the function display_json


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("""'{"a": [1]}'""", '{"a": [1]}'),
        (
            "(SELECT jsonb_agg('1e131071'::jsonb) FROM generate_series(1, 9000))",
            '"JSON that is too large as text to be shown"',
        ),
        (
            "(SELECT jsonb_agg('1e131071'::jsonb) FROM generate_series(1, 300))",
            '"JSON that is too large as text to be shown"',
        ),
        ("NULL", None),
    ],
)
def test_json_is_shown_as_text_or_as_the_reason_why_it_is_not(queue: Queue, value: str, expected: str | None) -> None:
    assert queue.value(f"SELECT messages.display_json({value})") == expected
