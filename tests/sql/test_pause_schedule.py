"""messages.pause_schedule: stops a schedule, with user and reason."""

from __future__ import annotations

import pytest
from psycopg import errors

from tests.sql.queue import Queue


def test_a_paused_schedule_records_begin_user_and_reason(queue: Queue) -> None:
    queue.stop_clock("2026-11-16 09:00:00+00")
    queue.schedule("s")

    assert queue.call("pause_schedule", "s", "the printer is out of paper") is True

    paused = queue.scheduled()
    assert paused.paused_at == queue.call("now")
    assert (paused.paused_by, paused.paused_reason) == (
        queue.value("SELECT session_user::text"),
        "the printer is out of paper",
    )


def test_pausing_again_replaces_the_reason_and_keeps_the_beginning(queue: Queue) -> None:
    queue.schedule("s")
    queue.call("pause_schedule", "s", "a")
    since = queue.scheduled().paused_at

    assert queue.call("pause_schedule", "s", "b") is False
    assert (queue.scheduled().paused_reason, queue.scheduled().paused_at) == ("b", since)


def test_an_unknown_schedule_is_an_error_with_the_fix(queue: Queue) -> None:
    with pytest.raises(errors.InvalidParameterValue, match='there is no schedule "nope"') as caught:
        queue.call("pause_schedule", "nope")

    assert caught.value.diag.message_hint == "see messages.schedule for those there are"
