"""messages.archive_expired: messages whose TTL is over are archived as expired."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_expired_messages_are_dead_with_a_reason_and_without_a_worker(queue: Queue) -> None:
    first, second = queue.publish_many(2)

    assert queue.call("archive_expired", [first, second]) == 2

    for each in (first, second):
        archived = queue.archived(each)
        assert (archived.result, archived.handled_by, archived.claim_id) == ("expired", None, None)
        assert archived.error == "expired: it was not worked within its time to live"
    assert queue.value("SELECT count FROM messages.alert WHERE result = 'expired'") == 2


def test_a_locked_message_is_left_alone(queue: Queue) -> None:
    """It may still succeed."""
    published = queue.publish()
    queue.claim()

    assert queue.call("archive_expired", [published]) == 0

    assert queue.archived(published) is None


def test_a_message_that_is_gone_is_not_counted(queue: Queue) -> None:
    assert queue.call("archive_expired", [4711]) == 0
