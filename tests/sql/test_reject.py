"""messages.reject: the messages are invalid. (What every settle shares: test_archive.py.)"""

from __future__ import annotations

from tests.sql.queue import Queue


def test_a_rejected_message_is_archived_with_its_error_whatever_attempts_are_left(queue: Queue) -> None:
    published = queue.publish(max_attempts=10)

    lost = queue.settle("reject", queue.claim(), ["no field 'id'"])

    archived = queue.archived(published)
    assert (lost, archived.result, archived.error, archived.attempts) == ([], "rejected", "no field 'id'", 1)
    assert archived.error_fingerprint == queue.call("error_fingerprint", "no field 'id'")


def test_each_message_keeps_its_own_error(queue: Queue) -> None:
    first, second, third = queue.publish_many(3)

    queue.settle("reject", queue.claim(), ["one", None, "three"])

    assert [queue.archived(m).error for m in (first, second, third)] == ["one", None, "three"]
