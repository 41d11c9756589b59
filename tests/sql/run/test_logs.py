"""The log lines of attempts that a worker saves."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sql.queue import Background, Queue, Row

# messages.save_logs: saves the log lines of attempts, only for the holder of each message.


def save(queue: Queue, claimed: list[Row], lines: list[str], left_out: list[int] | None = None) -> list[int]:
    lost: list[int] = queue.call("save_logs", [c.id for c in claimed], [c.claim_id for c in claimed], lines, left_out)
    return lost


def kept(queue: Queue) -> list[tuple[Any, ...]]:
    rows = queue.rows(
        "SELECT message_id, attempt, lines, left_out FROM messages.attempt_log ORDER BY kept_at, message_id"
    )
    return [tuple(row) for row in rows]


def test_lines_of_each_attempt_stay_with_the_message_and_its_archive_row(queue: Queue) -> None:
    queue.policy(max_attempts=3)
    message = queue.publish()

    for text in ("first", "second"):
        claimed = queue.claim_one()
        assert save(queue, [claimed], [text], [7]) == []
        queue.settle("retry", [claimed], ["boom"], ["0 s"])
    last = queue.claim_one()
    save(queue, [last], ["third"])
    queue.settle("complete", [last])
    queue.call("prune")
    queue.call("prune")

    assert kept(queue) == [(message, 1, "first", 7), (message, 2, "second", 7), (message, 3, "third", 0)]


def test_the_time_of_the_claim_is_that_of_the_history(queue: Queue) -> None:
    queue.policy(max_attempts=2)
    message = queue.publish()
    claimed = queue.claim_one()
    save(queue, [claimed], ["x"])
    queue.settle("retry", [claimed], ["boom"], ["1 h"])

    assert queue.value(
        """SELECT l.locked_at = (m.history -> -1 ->> 'started')::timestamptz
           FROM messages.message AS m JOIN messages.attempt_log AS l ON l.message_id = m.id WHERE m.id = %s""",
        [message],
    )


def test_a_worker_that_lost_its_lock_saves_nothing(queue: Queue) -> None:
    queue.policy(max_attempts=3)
    queue.publish_many(2)
    late, holds = queue.claim()
    queue.settle("retry", [late], ["boom"], ["0 s"])
    again = queue.claim_one()

    lost = save(queue, [holds, late], ["mine", "late"])

    assert (again.id, lost) == (late.id, [late.id])
    assert kept(queue) == [(holds.id, 1, "mine", 0)]


@pytest.mark.parametrize("settle", ["reject", "fail"])
def test_the_lines_of_a_message_that_ended_otherwise_are_not_saved(queue: Queue, settle: str) -> None:
    queue.publish()
    claimed = queue.claim_one()
    queue.settle(settle, [claimed], ["boom"])

    assert save(queue, [claimed], ["late"]) == [claimed.id]
    assert kept(queue) == []


def test_a_message_that_its_handler_completed_itself_gets_its_lines(queue: Queue) -> None:
    queue.publish_many(2)
    mine, of_others = queue.claim()
    queue.settle("complete", [mine, of_others])

    stranger = of_others._replace(claim_id=of_others.claim_id + 1)
    assert save(queue, [mine, stranger], ["done", "not mine"]) == [of_others.id]
    assert kept(queue) == [(mine.id, 1, "done", 0)]


@pytest.mark.parametrize(("strict", "lost"), [(True, 1), (False, 0)])
def test_with_strict_lock_an_expired_lock_is_lost(queue: Queue, strict: bool, lost: int) -> None:
    queue.policy(lock_duration="1 s", strict_lock=strict)
    queue.publish()
    claimed = queue.claim_one()

    queue.later("2 s")

    assert len(save(queue, [claimed], ["x"])) == lost
    assert len(kept(queue)) == 1 - lost


def test_saved_again_the_first_lines_of_a_claim_stay(queue: Queue) -> None:
    message = queue.publish()
    claimed = queue.claim_one()
    save(queue, [claimed], ["first"])

    assert save(queue, [claimed], ["second"]) == []
    assert kept(queue) == [(message, 1, "first", 0)]


def test_an_attempt_that_was_handed_back_keeps_its_lines_beside_the_next_one(queue: Queue) -> None:
    message = queue.publish()
    for text in ("released", "next"):
        claimed = queue.claim_one()
        save(queue, [claimed], [text])
        queue.settle("release", [claimed])

    assert kept(queue) == [(message, 1, "released", 0), (message, 1, "next", 0)]


def test_the_last_twenty_claims_of_a_message_are_kept(queue: Queue) -> None:
    message = queue.publish()
    for number in range(23):
        claimed = queue.claim_one()
        save(queue, [claimed], [str(number)])
        queue.settle("release", [claimed])

    assert [lines for _, _, lines, _ in kept(queue)] == [str(number) for number in range(3, 23)]
    assert message


def test_of_too_long_lines_the_end_is_kept(queue: Queue) -> None:
    queue.publish()
    claimed = queue.claim_one()

    save(queue, [claimed], ["a" * 300_000 + "end"], [-5])

    ((_, _, lines, left_out),) = kept(queue)
    assert (len(lines), lines[-4:], left_out) == (262_144, "aend", 0)


def test_deleted_messages_leave_no_lines(queue: Queue) -> None:
    queue.policy(max_attempts=2)
    message = queue.publish()
    claimed = queue.claim_one()
    save(queue, [claimed], ["secret"])
    queue.settle("retry", [claimed], ["boom"], ["1 h"])

    queue.call("delete", [message])

    assert kept(queue) == []


def test_it_waits_for_another_settle_and_then_saves_nothing(queue: Queue, other: Queue, background: Background) -> None:
    queue.publish()
    claimed = queue.claim_one()
    with other.conn.transaction():
        other.settle("fail", [claimed], ["boom"])
        saving = background.start_blocked(queue, save, queue, [claimed], ["late"])

    assert saving.result() == [claimed.id]
    assert kept(queue) == []


# messages.prune_orphans: lines are deleted once their message is neither live nor archived.


def end_with_lines(queue: Queue, count: int) -> list[int]:
    queue.publish_many(count)
    claimed = queue.claim()
    save(queue, claimed, ["x"] * count)
    queue.settle("complete", claimed)
    return [each.id for each in claimed]


def test_lines_leave_with_their_archive_row(queue: Queue) -> None:
    gone, stays = end_with_lines(queue, 2)
    queue.conn.execute("DELETE FROM messages.message_archive WHERE id = %s", [gone])

    queue.call("prune")

    assert [each[0] for each in kept(queue)] == [stays]
