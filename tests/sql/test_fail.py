"""messages.fail: the messages failed finally. (What every settle shares: test_archive.py.)"""

from __future__ import annotations

from tests.sql.queue import Queue


def test_a_failed_message_is_archived_whatever_attempts_are_left(queue: Queue) -> None:
    published = queue.publish(max_attempts=10)

    lost = queue.settle("fail", queue.claim(), ["ZeroDivisionError: division by zero"])

    archived = queue.archived(published)
    assert (lost, archived.result, archived.error) == ([], "failed", "ZeroDivisionError: division by zero")
    assert archived.error_fingerprint is not None
