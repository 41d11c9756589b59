"""messages.expire_locks: ends the attempts of workers that died, froze or lost the database."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.server.postgres import Database
from tests.sql.queue import Queue


@pytest.fixture(autouse=True)
def stopped_clock(queue: Queue) -> None:
    queue.later("0")


def test_by_default_an_expired_lock_archives_its_message_as_lock_expired(queue: Queue) -> None:
    published = queue.publish()
    queue.claim(worker="host-1")
    queue.later("31 s")

    assert queue.call("expire_locks") == 1

    archived = queue.archived(published)
    assert (queue.message(published), archived.result, archived.handled_by) == (None, "lock_expired", "host-1")
    assert archived.error.startswith("lock_expired: host-1 held it from ")


def test_a_message_with_attempts_left_is_ready_again(queue: Queue) -> None:
    queue.policy(backoff={"kind": "none"})
    published = queue.publish(max_attempts=2)
    queue.claim(worker="dead")
    queue.later("31 s")

    queue.call("expire_locks")

    (claimed,) = queue.claim(worker="alive")
    assert (claimed.id, claimed.attempt) == (published, 2)
    (entry,) = queue.message(published).history
    assert (entry["worker"], entry["outcome"]) == ("dead", "lock_expired")


def test_expired_locks_use_up_the_same_attempts_as_failures(queue: Queue) -> None:
    queue.policy(backoff={"kind": "none"}, max_attempts=3)
    published = queue.publish()
    queue.settle("retry", queue.claim(), ["boom"])
    for _ in range(2):
        queue.claim()
        queue.later("31 s")
        queue.call("expire_locks")

    archived = queue.archived(published)
    assert (archived.result, archived.attempts) == ("lock_expired", 3)


def test_a_lock_is_valid_until_its_very_last_moment(queue: Queue) -> None:
    queue.publish()
    queue.claim(lock_duration="30 s")

    queue.later("30 s")
    assert queue.call("expire_locks") == 0

    queue.later("1 microsecond")
    assert queue.call("expire_locks") == 1


def test_an_extended_lock_does_not_expire(queue: Queue) -> None:
    queue.publish()
    claimed = queue.claim()
    queue.later("29 s")
    queue.settle("heartbeat", claimed)
    queue.later("29 s")

    assert queue.call("expire_locks") == 0


def test_messages_without_a_lock_are_not_changed(queue: Queue) -> None:
    published = queue.publish(wait="-1 day")

    assert queue.call("expire_locks") == 0
    assert queue.message(published).attempts == 0


def test_one_call_is_bounded_and_the_next_continues(queue: Queue) -> None:
    queue.publish_many(5)
    queue.claim()
    queue.later("1 hour")

    assert [queue.call("expire_locks", 2) for _ in range(4)] == [2, 2, 1, 0]


def test_a_second_call_does_nothing(queue: Queue) -> None:
    queue.publish()
    queue.claim()
    queue.later("1 hour")
    queue.call("expire_locks")

    assert queue.call("expire_locks") == 0


def test_the_delay_is_the_topics_lock_expired_delay(queue: Queue) -> None:
    queue.policy(max_attempts=2, lock_expired_delay="7 s")
    published = queue.publish()
    queue.claim()
    queue.later("1 hour")

    queue.call("expire_locks")

    assert queue.message(published).available_at - queue.call("now") == timedelta(seconds=7)


def test_two_concurrent_calls_share_the_work_without_waiting(queue: Queue, other: Queue) -> None:
    queue.publish_many(4)
    queue.claim()
    queue.later("1 hour")
    other.later("1 hour")

    with queue.conn.transaction():
        first = queue.call("expire_locks", 2)
        second = other.call("expire_locks", 10)

    assert (first, second) == (2, 2)


def test_a_worker_that_resumes_after_its_lock_expired_is_fenced(queue: Queue, database: Database) -> None:
    frozen = Queue(database.connect())
    published = queue.publish(max_attempts=2)
    claimed = frozen.claim(worker="frozen")
    queue.later("31 s")
    queue.call("expire_locks")
    queue.later("1 day")
    queue.settle("complete", queue.claim(worker="alive"))

    assert frozen.settle("heartbeat", claimed) == [published]
    assert frozen.settle("complete", claimed) == [published]
    assert queue.archived(published).handled_by == "alive"


def test_an_expired_lock_is_ended_only_after_the_open_transaction_of_a_step_commits(queue: Queue, other: Queue) -> None:
    """Not before: the next attempt would repeat the step. And expire_locks does not wait."""
    published = queue.publish(max_attempts=2)
    claimed = queue.claim_one()
    queue.later("31 s")

    with other.conn.transaction():
        other.value("SELECT messages.save_step(%s, %s, 'charge', '1')", [claimed.id, claimed.claim_id])
        queue.conn.execute("SET lock_timeout = '1s'")
        meanwhile = queue.call("expire_locks")
    queue.conn.execute("RESET lock_timeout")

    assert (meanwhile, queue.call("expire_locks")) == (0, 1)
    queue.later("1 hour")
    again = queue.claim_one()
    assert again.id == published
    assert [
        row.name for row in queue.rows("SELECT name FROM messages.load_steps(%s, %s)", [again.id, again.claim_id])
    ] == ["charge"]
