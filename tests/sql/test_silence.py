"""messages.silence: matching alerts are not sent for a while."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg import errors

from tests.sql.queue import Queue


def test_it_records_user_end_and_reason(queue: Queue) -> None:
    queue.stop_clock("2026-01-01")
    queue.conn.execute("SELECT set_config('messages.actor', 'ann', false)")

    number = queue.call("silence", topic="orders.*", reason="known", **{"for": "2 hours"})

    found = queue.row(
        "SELECT s.*, s.until - messages.now() = '2 hours' AS right FROM messages.silence AS s WHERE id = %s", [number]
    )
    assert (found.topic, found.created_by, found.reason, found.right) == ("orders.*", "ann", "known", True)


def test_an_audit_entry_is_written(queue: Queue) -> None:
    number = queue.call("silence", topic="t", **{"for": "1 hour"})

    assert queue.row("SELECT action, topic, target FROM messages.audit") == ("alert.silence", "t", str(number))


@pytest.mark.parametrize(
    "given",
    [
        {"for": "1 hour"},
        {"topic": "t"},
        {"topic": "t", "for": "1 hour", "until": "2999-01-01"},
        {"topic": "t", "for": "0 s"},
        {"topic": "t", "until": "2020-01-01"},
        {"topic": "t", "for": "11 years"},
    ],
)
def test_a_silence_that_matches_nothing_or_has_no_end_is_refused(queue: Queue, given: dict[str, Any]) -> None:
    with pytest.raises((errors.InvalidParameterValue, errors.NullValueNotAllowed)):
        queue.call("silence", **given)
