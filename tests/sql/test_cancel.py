"""messages.cancel: an operator ends waiting and running messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.sql.queue import Background, Listener, Queue


@pytest.mark.parametrize("wait", ["-1 s", "1 hour"])
def test_a_waiting_message_is_archived_as_cancelled(queue: Queue, wait: str) -> None:
    published = queue.publish(wait=wait)

    assert queue.call("cancel", [published]) == [published]

    archived = queue.archived(published)
    assert (queue.message(published), archived.result, archived.error, archived.handled_by) == (
        None,
        "cancelled",
        "cancelled",
        "postgres",
    )


def test_the_reason_is_kept(queue: Queue) -> None:
    published = queue.publish()

    queue.call("cancel", [published], "ordered twice")

    assert queue.archived(published).error == "cancelled: ordered twice"


def test_the_worker_of_a_running_message_is_notified_at_once(queue: Queue, listen: Callable[..., Listener]) -> None:
    listener = listen("cancelled")
    running, waiting = queue.publish(), queue.publish("u")
    queue.claim()

    queue.call("cancel", [running, waiting])

    assert listener.received() == [str(running)]


@pytest.mark.parametrize(
    ("settle", "arguments"),
    [("complete", ()), ("retry", (["x"],)), ("fail", (["x"],)), ("release", ()), ("defer", ()), ("heartbeat", ())],
)
def test_later_settles_of_the_worker_change_nothing_and_report_a_lost_lock(
    queue: Queue, settle: str, arguments: Any
) -> None:
    published = queue.publish(max_attempts=5)
    claimed = queue.claim()
    queue.call("cancel", [published])
    before = queue.archived(published)

    assert queue.settle(settle, claimed, *arguments) == [published]
    assert (queue.message(published), queue.archived(published)) == (None, before)


def test_an_ended_message_is_not_cancelled(queue: Queue) -> None:
    published = queue.publish()
    queue.settle("complete", queue.claim())

    assert queue.call("cancel", [published]) == []
    assert queue.archived(published).result == "success"


@pytest.mark.parametrize("ids", [[], None, [4711]])
def test_an_unknown_message_is_not_cancelled(queue: Queue, ids: Any) -> None:
    assert queue.call("cancel", ids) == []


def test_many_are_cancelled_at_once(queue: Queue) -> None:
    published = queue.publish_many(50)
    queue.claim(limit=20)

    assert sorted(queue.call("cancel", published)) == published
    assert queue.ids() == []


def test_a_cancel_waits_for_a_settle_in_progress_and_then_finds_nothing(
    queue: Queue, other: Queue, background: Background, eventually: Callable[..., Any]
) -> None:
    published = queue.publish()
    claimed = queue.claim()

    with queue.conn.transaction():
        queue.settle("complete", claimed)
        cancel = background.start(other.call, "cancel", [published])
        eventually(lambda: background.is_blocked(other))

    assert cancel.result(timeout=60) == []
    assert queue.archived(published).result == "success"


def test_a_message_that_is_claimed_at_the_same_time_is_cancelled_as_running(
    queue: Queue, other: Queue, background: Background, eventually: Callable[..., Any], listen: Callable[..., Listener]
) -> None:
    listener = listen("cancelled")
    published = queue.publish()

    with queue.conn.transaction():
        claimed = queue.claim()
        cancel = background.start(other.call, "cancel", [published])
        eventually(lambda: background.is_blocked(other))

    assert cancel.result(timeout=60) == [published]
    assert listener.received() == [str(published)]
    assert queue.settle("complete", claimed) == [published]


def test_the_archive_records_the_operator(queue: Queue) -> None:
    published = queue.publish()
    queue.conn.execute("SET ROLE messages_operator")

    queue.call("cancel", [published])

    queue.conn.execute("RESET ROLE")
    assert queue.archived(published).handled_by == "postgres"
