"""messages.run_schedule: a schedule publishes its message now, by hand."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg import errors

from tests.sql.queue import Queue, Row


@pytest.fixture
def queue(queue: Queue) -> Queue:
    """The clock is stopped at nine o'clock."""
    queue.stop_clock("2026-11-16 09:00:00+00")
    return queue


def run_now(queue: Queue, name: Any = "s") -> Row:
    return queue.row("SELECT * FROM messages.run_schedule(%s)", [name])


def test_it_publishes_the_message_and_records_the_user(queue: Queue) -> None:
    queue.schedule("s", "0 12 * * *", payload={"n": 1}, jitter="1 hour")

    published, what = run_now(queue)

    assert what == "published"
    message = queue.message(published)
    assert (message.payload, message.headers["schedule"]) == ({"n": 1}, "s")
    assert message.available_at - queue.call("now") < queue.value("SELECT interval '1 ms'")
    (run,) = queue.runs()
    assert (run.outcome, run.message_id, run.run_by) == (
        "published",
        published,
        queue.value("SELECT session_user::text"),
    )


def test_the_ticks_of_the_schedule_are_not_changed(queue: Queue) -> None:
    queue.schedule("s", "0 10 * * *")
    before = queue.scheduled().next_tick

    run_now(queue)

    assert (queue.scheduled().next_tick, queue.scheduled().last_tick) == (before, None)
    queue.later("1 hour")
    assert queue.call("fire_schedules") == 1


def test_at_the_exact_time_of_a_tick_both_are_published(queue: Queue) -> None:
    queue.schedule("s", "0 * * * *")
    queue.later("1 hour")

    run_now(queue)

    assert queue.call("fire_schedules") == 1
    assert len(queue.ids()) == len(queue.runs()) == 2


def test_it_can_be_called_any_number_of_times(queue: Queue) -> None:
    queue.schedule("s", "0 * * * *")

    published = {run_now(queue).id for _ in range(3)}

    assert len(published) == len(queue.runs()) == 3


def test_a_paused_schedule_runs_too(queue: Queue) -> None:
    queue.schedule("s", "0 * * * *")
    queue.call("pause_schedule", "s")

    assert run_now(queue).id in queue.ids()


def test_while_its_key_waits_it_publishes_nothing_and_returns_the_waiting_message(queue: Queue) -> None:
    queue.schedule("s", "0 * * * *", key="k")
    published, _ = run_now(queue)

    assert tuple(run_now(queue)) == (published, "ignored")
    assert [run.outcome for run in queue.runs()] == ["published", "ignored"]


@pytest.mark.parametrize("name", ["nope", None])
def test_an_unknown_schedule_is_an_error_with_the_fix(queue: Queue, name: Any) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="there is no schedule") as caught:
        run_now(queue, name)

    assert caught.value.diag.message_hint == "see messages.schedule for those there are"
