"""messages.resume_schedule: resumes a paused schedule."""

from __future__ import annotations

import pytest
from psycopg import errors

from tests.sql.queue import Queue


@pytest.mark.parametrize("missed", ["skip", "once", "all"])
def test_it_continues_with_the_next_tick_and_fires_none_of_the_pause(queue: Queue, missed: str) -> None:
    queue.stop_clock("2026-11-16 09:00:00+00")
    queue.schedule("s", "0 * * * *", missed=missed)
    queue.call("pause_schedule", "s", "why")
    queue.later("3 hours 30 minutes")

    assert queue.call("resume_schedule", "s") is True

    resumed = queue.scheduled()
    assert (resumed.paused_at, resumed.paused_by, resumed.paused_reason) == (None, None, None)
    assert resumed.next_tick.hour == 13
    assert queue.call("fire_schedules") == 0


def test_a_schedule_that_is_not_paused_is_not_changed(queue: Queue) -> None:
    queue.schedule("s")
    before = queue.scheduled()

    assert queue.call("resume_schedule", "s") is False
    assert queue.scheduled() == before


def test_an_unknown_schedule_is_an_error_with_the_fix(queue: Queue) -> None:
    with pytest.raises(errors.InvalidParameterValue, match='there is no schedule "nope"') as caught:
        queue.call("resume_schedule", "nope")

    assert caught.value.diag.message_hint == "see messages.schedule for those there are"
