"""messages.kept_steps: the holder of a message gets what earlier attempts kept."""

from __future__ import annotations

from tests.sql.queue import Queue, Row


def kept(queue: Queue, claimed: Row) -> list[tuple[str, str]]:
    rows = queue.rows("SELECT * FROM messages.kept_steps(%s, %s)", [claimed.id, claimed.claim_id])
    return sorted((row.name, row.result) for row in rows)


def test_a_later_attempt_gets_them_as_text(queue: Queue) -> None:
    queue.policy(max_attempts=3)
    queue.publish()
    first = queue.claim_one()
    for name in ("a", "b"):
        queue.value("SELECT messages.keep_step(%s, %s, %s, '[1, null]')", [first.id, first.claim_id, name])

    queue.settle("retry", [first], ["boom"], ["0 s"])
    second = queue.claim_one()

    assert kept(queue, second) == [("a", "[1, null]"), ("b", "[1, null]")]
    assert kept(queue, first) == []


def test_a_message_without_steps_has_none(queue: Queue) -> None:
    queue.publish()

    assert kept(queue, queue.claim_one()) == []
