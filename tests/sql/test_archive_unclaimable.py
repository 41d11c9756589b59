"""messages.archive_unclaimable: a claim archives messages that it must not return."""

from __future__ import annotations

import pytest

from tests.server.postgres import Database
from tests.sql.lock_timeouts import extend_timeout
from tests.sql.queue import Background, Queue


@pytest.mark.parametrize("channel", [None, "c"])
def test_an_expired_message_is_archived_as_expired_without_counting_an_attempt(
    queue: Queue, channel: str | None
) -> None:
    gone = queue.publish(expires_at="2026-01-01", channel=channel)
    stays = queue.publish(expires_at="2900-01-01", channel=channel)

    assert [c.id for c in queue.claim(worker="me")] == [stays]

    archived = queue.archived(gone)
    assert (archived.result, archived.attempts, archived.handled_by) == ("expired", 0, None)
    assert archived.error == "expired: it was not worked within its time to live"


@pytest.mark.parametrize("channel", [None, "c"])
def test_a_message_without_attempts_left_is_archived_as_failed(queue: Queue, channel: str | None) -> None:
    gone = queue.publish(max_attempts=1, channel=channel)
    queue.conn.execute("UPDATE messages.message SET attempts = 1")

    assert queue.claim(worker="me") == []

    archived = queue.archived(gone)
    assert (archived.result, archived.attempts, archived.handled_by) == ("failed", 1, "me")
    assert archived.error == "max_attempts: all attempts were used up before this claim"


def test_the_depth_is_lowered_by_the_archived_messages(queue: Queue) -> None:
    queue.policy(max_depth=2)
    queue.publish_many(2, expires_at="2026-01-01")

    queue.claim()

    assert queue.depth() == 0


def test_it_archives_without_waiting_while_another_session_holds_the_depth_counter(queue: Queue, other: Queue) -> None:
    """A publisher holds the counter until it commits, and this claim may hold the lock of a limited topic that other claims wait for."""
    queue.policy(max_depth=10)
    published = queue.publish(expires_at="2026-01-01")
    other.conn.execute("SET lock_timeout = '2s'")
    with queue.conn.transaction():
        queue.publish()

        assert other.claim() == []
        assert queue.archived(published).result == "expired"

    assert len(other.claim()) == queue.depth() == 1


def test_a_claim_that_archives_and_a_settle_in_a_claim_transaction_do_not_wait_for_each_other(
    own_database: Database,
) -> None:
    queue, other, watcher = (Queue(own_database.connect()) for _ in range(3))
    background = Background(watcher.conn)
    extend_timeout(queue, "lock_topic", "250ms")
    queue.policy(max_depth=100, max_concurrency=2)
    queue.publish()
    held = queue.claim()
    queue.publish(expires_at="2026-01-01")

    with other.conn.transaction():
        other.row("SELECT messages.topic_slots(messages.claim_policy('t', messages.now()), 1)")
        with queue.conn.transaction():
            queue.settle("complete", held)
            settling = background.start(queue.claim)
            while not background.is_blocked(queue):
                assert not settling.done()

            assert other.claim() == []
            other.conn.execute("COMMIT")
            settling.result(timeout=60)
