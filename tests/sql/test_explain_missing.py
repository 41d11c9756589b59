"""explain_missing: an id that is neither live nor archived."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue


def test_an_id_above_the_highest_was_never_published(queue: Queue) -> None:
    highest = queue.publish()

    row = queue.row("SELECT * FROM messages.explain(%s)", [highest + 1])

    assert (row.code, row.reason) == (
        "never_published",
        f"it was never published: the highest id so far is {highest}",
    )


@pytest.mark.parametrize("impossible", [0, -1])
def test_an_invalid_id_was_never_published(queue: Queue, impossible: int) -> None:
    queue.publish()

    assert queue.row("SELECT * FROM messages.explain(%s)", [impossible]).code == "never_published"


def test_an_id_below_the_highest_was_deleted_or_rolled_back(queue: Queue) -> None:
    queue.policy(archive_success="none")
    message = queue.publish()
    queue.settle("complete", queue.claim())

    row = queue.row("SELECT * FROM messages.explain(%s)", [message])

    assert row.code == "gone"
    assert "archive_success = none" in row.reason


def test_a_redriven_message_that_left_the_archive_still_names_its_successor(queue: Queue) -> None:
    message = queue.publish()
    queue.settle("fail", queue.claim(), ["boom"])
    (back,) = queue.rows("SELECT * FROM messages.redrive(%s)", [[message]])
    queue.conn.execute("DELETE FROM messages.message_archive")

    rows = queue.rows("SELECT * FROM messages.explain(%s)", [message])

    assert [row.code for row in rows] == ["redriven", "gone"]
    assert rows[0].detail["message_id"] == back.message_id
