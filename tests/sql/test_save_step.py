"""messages.save_step: saves the result of a step, only for the holder of its message."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg import errors

from tests.server.deadline import eventually
from tests.sql.queue import Background, Queue, Row


def keep(queue: Queue, claimed: Row, name: str | None = "charge", result: str | None = '{"n": 1}') -> bool:
    kept: bool = queue.value("SELECT messages.save_step(%s, %s, %s, %s)", [claimed.id, claimed.claim_id, name, result])
    return kept


def steps(queue: Queue) -> list[Any]:
    return [tuple(row) for row in queue.rows("SELECT name, result, attempt FROM messages.step ORDER BY name")]


def test_a_step_is_saved_with_the_attempt_that_did_it(queue: Queue) -> None:
    queue.publish()

    assert keep(queue, queue.claim_one()) is True
    assert steps(queue) == [("charge", {"n": 1}, 1)]


def test_a_saved_step_is_not_changed(queue: Queue) -> None:
    queue.publish()
    claimed = queue.claim_one()
    keep(queue, claimed)

    assert keep(queue, claimed, result="2") is True
    assert steps(queue) == [("charge", {"n": 1}, 1)]


def test_a_worker_that_lost_the_lock_saves_nothing(queue: Queue) -> None:
    queue.publish()
    stale = queue.claim_one()
    queue.settle("release", [stale])
    queue.claim_one()

    assert keep(queue, stale) is False
    assert steps(queue) == []


def test_of_two_attempts_with_the_same_step_the_later_one_has_to_roll_back(
    queue: Queue, other: Queue, background: Background
) -> None:
    """A drain released the message while a thread was still in the transaction of its step."""
    published = queue.publish()
    released = queue.claim_one()
    with other.conn.transaction():
        assert keep(other, released, result='"by the first"')
        queue.settle("release", [released])
        claimed = queue.claim_one()
        later = background.start(keep, queue, claimed, result='"by the second"')
        eventually(lambda: background.is_blocked(queue))
    with pytest.raises(
        errors.UniqueViolation, match=f'step "charge" of message {published} was kept by another attempt'
    ):
        later.result(timeout=60)
    assert steps(queue) == [("charge", "by the first", 1)]


def test_after_a_rollback_of_the_released_attempt_the_later_one_saves_the_step(
    queue: Queue, other: Queue, background: Background
) -> None:
    queue.publish()
    released = queue.claim_one()
    with other.conn.transaction(force_rollback=True):
        keep(other, released)
        queue.settle("release", [released])
        claimed = queue.claim_one()
        later = background.start(keep, queue, claimed, result='"by the second"')
        eventually(lambda: background.is_blocked(queue))

    assert later.result(timeout=60) is True
    assert steps(queue) == [("charge", "by the second", 1)]


@pytest.mark.parametrize(("strict", "is_kept"), [(True, False), (False, True)])
def test_with_strict_lock_an_expired_lock_is_lost(queue: Queue, strict: bool, is_kept: bool) -> None:
    queue.policy(strict_lock=strict)
    queue.publish()
    claimed = queue.claim_one(lock_duration="1 ms")
    queue.later("1 second")

    assert keep(queue, claimed) is is_kept


def test_steps_are_deleted_when_the_message_succeeds_and_kept_when_it_dies(queue: Queue) -> None:
    well, badly = queue.publish("well"), queue.publish("badly")
    one, two = queue.claim_one("well"), queue.claim_one("badly")
    keep(queue, one)
    keep(queue, two)

    queue.settle("complete", [one])
    queue.settle("fail", [two], ["boom"])

    assert [row.message_id for row in queue.rows("SELECT message_id FROM messages.step")] == [badly]
    assert queue.archived(well).result == "success"


@pytest.mark.parametrize(
    ("name", "result", "says"),
    [
        ("", "1", "name of a step"),
        ("x" * 201, "1", "name of a step"),
        ("a\nb", "1", "name of a step"),
        (None, "1", "name of a step is NULL"),
        ("s", None, "is NULL"),
        ("s", f'"{"x" * 2_097_152}"', "bytes"),
    ],
    ids=["empty", "long", "control", "no name", "no result", "large"],
)
def test_invalid_steps_are_refused(queue: Queue, name: str, result: str, says: str) -> None:
    queue.publish()

    with pytest.raises(errors.InvalidParameterValue, match=says):
        keep(queue, queue.claim_one(), name, result)


def test_a_message_has_at_most_a_thousand_steps(queue: Queue) -> None:
    published = queue.publish()
    queue.conn.execute(
        "INSERT INTO messages.step SELECT %s, n::text, '1', 1 FROM generate_series(1, 1000) AS n", [published]
    )

    with pytest.raises(errors.InvalidParameterValue, match="1000 steps"):
        keep(queue, queue.claim_one())


def test_the_lock_is_extended_while_the_transaction_of_a_step_is_open(queue: Queue, other: Queue) -> None:
    published = queue.publish()
    claimed = queue.claim_one()
    until = queue.message(published).lock_expires_at

    with other.conn.transaction():
        keep(other, claimed)
        queue.conn.execute("SET lock_timeout = '1s'")
        assert queue.settle("heartbeat", [claimed], lock_duration="1 hour") == []
        assert queue.message(published).lock_expires_at > until
    queue.conn.execute("RESET lock_timeout")
