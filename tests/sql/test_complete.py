"""messages.complete: the messages succeeded. (What every settle shares is in test_archive.py.)"""

from __future__ import annotations

from psycopg.types.json import Jsonb

from tests.sql.queue import Queue


def test_a_completed_message_is_archived_as_success(queue: Queue) -> None:
    published = queue.publish()

    lost = queue.settle("complete", queue.claim())

    archived = queue.archived(published)
    assert (lost, queue.message(published)) == ([], None)
    assert (archived.result, archived.error, archived.error_fingerprint, archived.output) == (
        "success",
        None,
        None,
        None,
    )


def test_the_output_of_the_handlers_is_stored(queue: Queue) -> None:
    first, second = queue.publish_many(2)

    queue.settle("complete", queue.claim(), [Jsonb({"rows": 3}), None])

    assert (queue.archived(first).output, queue.archived(second).output) == ({"rows": 3}, None)


def test_an_expired_lock_that_was_not_claimed_again_still_completes(queue: Queue) -> None:
    """Only the claim_id counts: finished work is not lost because the lock might have been expired."""
    published = queue.publish()
    claimed = queue.claim()
    queue.later("1 hour")

    assert queue.settle("complete", claimed) == []
    assert queue.archived(published).result == "success"


def test_thousands_complete_in_one_call(queue: Queue) -> None:
    queue.publish_many(5000)
    claimed = queue.claim(limit=5000)

    assert queue.settle("complete", claimed) == []
    assert queue.row("SELECT count(*) AS rows, count(DISTINCT id) AS ids FROM messages.message_archive") == (5000, 5000)
