"""explain_own: properties of the message itself that keep it from being claimed."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue, Row


@pytest.fixture(autouse=True)
def _worker(queue: Queue) -> None:
    queue.call("register_worker", "w1", "h", 7, "1", ["t"], 10)


def first(queue: Queue, message: int) -> Row:
    return queue.rows("SELECT * FROM messages.explain(%s)", [message])[0]


def test_a_delayed_message_shows_when_it_is_due(queue: Queue) -> None:
    queue.later("0")
    message = queue.publish(wait="5 minutes")

    row = first(queue, message)

    assert (row.code, row.reason) == ("delayed", "it is delayed, due in 5m")


def test_a_message_that_backs_off_shows_its_error(queue: Queue) -> None:
    queue.policy(max_attempts=5, backoff={"kind": "constant", "base": "7 s", "jitter": 0})
    message = queue.publish()
    claimed = queue.claim()
    queue.later("0")
    queue.settle("retry", claimed, ["Traceback\nValueError: boom"])

    row = first(queue, message)

    assert row.code == "retrying"
    assert row.reason == "attempt 1 of 5 ended as failed: ValueError: boom; the next is due in 7s"


def test_a_deferred_message_shows_that_its_handler_deferred_it(queue: Queue) -> None:
    message = queue.publish()
    queue.settle("defer", queue.claim(), ["1 hour"])

    assert first(queue, message).code == "deferred"


def test_an_expired_message_waits_for_the_tick(queue: Queue) -> None:
    queue.later("0")
    message = queue.publish()
    queue.conn.execute("UPDATE messages.message SET expires_at = messages.now() + interval '1 s'")
    queue.later("4 s")

    row = first(queue, message)

    assert row.code == "outlived"
    assert row.reason.startswith("its time to live ended 3s ago")


def test_a_message_whose_attempts_are_used_up_will_be_archived(queue: Queue) -> None:
    queue.policy(max_attempts=3, backoff={"kind": "none"})
    message = queue.publish()
    for _ in range(2):
        queue.settle("retry", queue.claim(), ["boom"])
    queue.policy(max_attempts=2)

    row = first(queue, message)

    assert (row.code, row.reason) == (
        "attempts_used_up",
        "it has had 2 of 2 attempts: the next claim archives it as failed",
    )
