"""messages.load_steps: the holder of a message gets the steps that earlier attempts saved."""

from __future__ import annotations

from tests.sql.queue import Queue, Row

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
