"""messages.audit_redrive: the audit entry of a redrive."""

from __future__ import annotations

from tests.sql.deaths import die, outcomes
from tests.sql.queue import Queue, Row


def audit(queue: Queue) -> list[Row]:
    return queue.rows("SELECT action, topic, target, detail FROM messages.audit")


def test_one_entry_counts_the_outcomes(queue: Queue) -> None:
    first, second = die(queue), die(queue)
    outcomes(queue, "redrive", [first])

    outcomes(queue, "redrive", [first, second])

    row = audit(queue)[-1]
    assert (row.action, row.topic, row.target) == ("redrive", "t", str(second))
    assert row.detail["outcomes"] == {"redriven": 1, "redriven_before": 1}
    assert row.detail["message_id"] == max(queue.ids())


def test_the_filters_of_a_redrive_are_recorded(queue: Queue) -> None:
    die(queue, error="disk 7")
    die(queue, error="disk 7")

    queue.rows("SELECT * FROM messages.redrive_where('t', p_error => 'disk', p_rate => 5)")

    (row,) = audit(queue)
    assert (row.action, row.detail["count"], row.detail["rate"]) == ("redrive_where", 2, 5)
    assert row.detail["filter"] == {"topic": "t", "error": "disk"}


def test_an_edited_redrive_records_which_parts_were_edited_and_not_their_contents(queue: Queue) -> None:
    died = die(queue)

    queue.rows("SELECT * FROM messages.redrive_edited(%s, p_payload => '\"secret\"', p_merge => false)", [died])

    (row,) = audit(queue)
    assert (row.action, row.detail["edited"]) == ("redrive_edited", ["payload"])
    assert "secret" not in str(row.detail)


def test_a_redrive_of_no_message_is_not_recorded(queue: Queue) -> None:
    outcomes(queue, "redrive", [4711])

    assert audit(queue) == []
