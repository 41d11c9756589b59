"""messages.read_claimed: the messages that a worker holds, read again."""

from __future__ import annotations

from tests.sql.queue import Queue, Row

HELD = "SELECT * FROM messages.read_claimed(%s, %s) ORDER BY id"
OF_NOW = ("waited_s", "elapsed_s")


def held(queue: Queue, claimed: list[Row]) -> list[Row]:
    return queue.rows(HELD, [[row.id for row in claimed], [row.claim_id for row in claimed]])


def lasting(rows: list[Row]) -> list[dict[str, object]]:
    return [{name: value for name, value in row._asdict().items() if name not in OF_NOW} for row in rows]


def test_it_returns_the_same_rows_as_the_claim(queue: Queue) -> None:
    queue.policy(max_attempts=3, timeout="5 s", lock_duration="1 minute")
    queue.publish(payload={"a": 1}, headers={"h": 1}, channel="c", priority=2)
    queue.publish(body=b"bytes", key="k")

    claimed = sorted(queue.claim(), key=lambda row: row.id)

    assert lasting(held(queue, claimed)) == lasting(claimed)


def test_lost_and_settled_messages_are_missing(queue: Queue) -> None:
    queue.policy(max_attempts=5)
    queue.publish_many(3)
    first, second, third = queue.claim()
    queue.settle("complete", [first])
    queue.settle("release", [second])
    queue.claim(worker="another")

    assert [row.id for row in held(queue, [first, second, third])] == [third.id]


def test_an_unknown_claim_returns_nothing(queue: Queue) -> None:
    published = queue.publish()

    assert queue.rows(HELD, [[published], [None]]) == []
