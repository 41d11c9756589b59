"""The view messages.ended: how each message ended, and how long that took."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue


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
    VALUES (%s, 't', 5, '{}', '2026-03-01 10:00:00Z', '2026-03-01 10:00:10Z', %s, 'success', '2026-03-01 10:00:12.5Z', '2026-03-01 10:00:20Z')"""


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
