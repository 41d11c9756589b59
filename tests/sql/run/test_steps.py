"""Steps and progress that a handler saves."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg import errors
from psycopg.types.json import Jsonb

from tests.sql.queue import Background, Queue, Row

# messages.load_steps: the holder of a message gets the steps that earlier attempts saved.

NOTHING = (None, None)


def kept(queue: Queue, claimed: Row, name: str | None = None) -> list[tuple[str, str]]:
    rows = queue.rows("SELECT * FROM messages.load_steps(%s, %s, %s)", [claimed.id, claimed.claim_id, name])
    return sorted((row.name, row.result) for row in rows)


def test_a_later_attempt_gets_them_as_text(queue: Queue) -> None:
    queue.policy(max_attempts=3)
    queue.publish()
    first = queue.claim_one()
    for name in ("a", "b"):
        queue.value("SELECT messages.save_step(%s, %s, %s, '[1, null]')", [first.id, first.claim_id, name])

    queue.settle("retry", [first], ["boom"], ["0 s"])
    second = queue.claim_one()

    assert kept(queue, second) == [("a", "[1, null]"), ("b", "[1, null]")]
    assert kept(queue, second, "b") == [("b", "[1, null]")]
    assert kept(queue, second, "c") == [NOTHING]
    assert kept(queue, first) == []


def test_a_message_without_steps_has_a_row_for_its_holder_and_none_for_others(queue: Queue) -> None:
    queue.publish()
    claimed = queue.claim_one()

    assert kept(queue, claimed) == [NOTHING]
    assert queue.rows("SELECT * FROM messages.load_steps(%s, %s)", [claimed.id, claimed.claim_id + 1]) == []
    assert queue.rows("SELECT * FROM messages.load_steps(%s, %s)", [claimed.id + 1, claimed.claim_id]) == []


def test_with_strict_lock_an_expired_lock_is_lost(queue: Queue) -> None:
    queue.policy(lock_duration="1 s", strict_lock=True)
    queue.publish()
    claimed = queue.claim_one()
    assert kept(queue, claimed) == [NOTHING]

    queue.later("2 s")

    assert kept(queue, claimed) == []


# messages.save_step: saves the result of a step, only for the holder of its message.


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
        later = background.start_blocked(queue, keep, queue, claimed, result='"by the second"')
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
        later = background.start_blocked(queue, keep, queue, claimed, result='"by the second"')

    assert later.result(timeout=60) is True
    assert steps(queue) == [("charge", "by the second", 1)]


@pytest.mark.parametrize(("strict", "is_kept"), [(True, False), (False, True)])
def test_save_step_with_strict_lock_an_expired_lock_is_lost(queue: Queue, strict: bool, is_kept: bool) -> None:
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


# messages.set_progress: the progress of a running message, written only by its holder.

HALF = {"done": 50, "total": 100, "unit": "rows"}


def note(queue: Queue, claimed: list[Any], *progress: Any, **named: Any) -> list[int]:
    return queue.settle("set_progress", claimed, [Jsonb(each) for each in progress], **named)


def test_progress_is_stored_with_the_message_and_replaces_the_previous_one(queue: Queue) -> None:
    published = queue.publish()
    claimed = queue.claim()

    assert note(queue, claimed, {"done": 1}) == []
    assert note(queue, claimed, HALF) == []

    assert queue.message(published).progress == HALF


def test_each_message_of_a_batch_has_its_own(queue: Queue) -> None:
    first, second = queue.publish_many(2)
    claimed = queue.claim()

    note(queue, claimed, {"done": 1}, {"done": 2})

    assert (queue.message(first).progress, queue.message(second).progress) == ({"done": 1}, {"done": 2})


def test_the_archive_has_the_last_progress(queue: Queue) -> None:
    published = queue.publish()
    claimed = queue.claim()
    note(queue, claimed, HALF)

    queue.settle("complete", claimed)

    assert queue.archived(published).progress == HALF


def test_a_lost_lock_is_reported_and_nothing_changes(queue: Queue) -> None:
    published = queue.publish()
    stale = queue.claim()
    queue.settle("release", stale)
    queue.claim()

    assert note(queue, stale, HALF) == [published]
    assert queue.message(published).progress is None


def test_with_no_wait_a_locked_row_is_skipped(queue: Queue, other: Queue) -> None:
    held, free = queue.publish_many(2)
    claimed = queue.claim()

    with queue.conn.transaction():
        queue.conn.execute("SELECT FROM messages.message WHERE id = %s FOR UPDATE", [held])
        assert note(other, claimed, {"done": 1}, {"done": 2}, wait=False) == []

    assert (queue.message(held).progress, queue.message(free).progress) == (None, {"done": 2})


def test_it_writes_no_index(own_database: Any) -> None:
    queue = Queue(own_database.connect())
    queue.publish_many(50)
    claimed = queue.claim()
    updated = (
        "SELECT pg_stat_get_xact_tuples_updated(c) AS every, pg_stat_get_xact_tuples_hot_updated(c) AS hot "
        "FROM CAST('messages.message' AS regclass) AS c"
    )

    with queue.conn.transaction():
        before = queue.row(updated)
        note(queue, claimed, *[{"done": n} for n in range(50)])
        after = queue.row(updated)

    assert (after.every - before.every, after.hot - before.hot) == (50, 50)
