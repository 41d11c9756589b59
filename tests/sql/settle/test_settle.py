"""Complete, reject, fail and release, and the states that they save."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.server.postgres import Database
from tests.sql.queue import Listener, Queue, Row

# messages.complete: the messages succeeded. (What every settle shares is in test_archive.py.)


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


def test_thousands_complete_in_one_call(queue: Queue) -> None:
    queue.publish_many(5000)
    claimed = queue.claim(limit=5000)

    assert queue.settle("complete", claimed) == []
    assert queue.row("SELECT count(*) AS rows, count(DISTINCT id) AS ids FROM messages.message_archive") == (5000, 5000)


# messages.completion_states: what became of messages that a handler completed in a transaction of its own.

STATES = "SELECT * FROM messages.completion_states(%s, %s)"


def states(queue: Queue, claimed: list[Row]) -> dict[int, str]:
    pairs = [[row.id for row in claimed], [row.claim_id for row in claimed]]
    return {row.id: row.state for row in queue.rows(STATES, pairs)}


def test_a_message_is_held_open_or_a_success(queue: Queue, database: Database) -> None:
    held, open_, done = queue.publish_many(3)
    claimed = queue.claim()
    queue.settle("complete", claimed[2:])
    with psycopg.connect(database.dsn) as other:
        Queue(other).settle("complete", claimed[1:2])

        assert states(queue, claimed) == {held: "held", open_: "open", done: "success"}
        other.rollback()

    assert states(queue, claimed)[open_] == "held"


def test_a_heartbeat_that_is_not_committed_opens_nothing(queue: Queue, database: Database) -> None:
    published = queue.publish()
    claimed = queue.claim()
    with psycopg.connect(database.dsn) as other:
        Queue(other).settle("heartbeat", claimed)

        assert states(queue, claimed) == {published: "held"}


@pytest.mark.parametrize("how", ["cancel", "release", "claim"])
def test_a_message_that_ended_or_was_claimed_otherwise_is_lost(queue: Queue, how: str) -> None:
    published = queue.publish()
    claimed = queue.claim()
    if how == "cancel":
        queue.call("cancel", [published])
    else:
        queue.settle("release", claimed)
    if how == "claim":
        queue.claim()

    assert states(queue, claimed) == {published: "lost"}


def test_a_success_of_which_nothing_is_kept_is_a_success(queue: Queue) -> None:
    queue.policy(archive_success="none")
    published = queue.publish()
    claimed = queue.claim()
    queue.settle("complete", claimed)

    assert states(queue, claimed) == {published: "success"}


# messages.reject: the messages are invalid. (What every settle shares: test_archive.py.)


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


# messages.fail: the messages failed finally. (What every settle shares: test_archive.py.)


def test_a_failed_message_is_archived_whatever_attempts_are_left(queue: Queue) -> None:
    published = queue.publish(max_attempts=10)

    lost = queue.settle("fail", queue.claim(), ["ZeroDivisionError: division by zero"])

    archived = queue.archived(published)
    assert (lost, archived.result, archived.error) == ([], "failed", "ZeroDivisionError: division by zero")
    assert archived.error_fingerprint is not None


# messages.release: messages that were never started keep their position in the queue. (What release and defer share:
# test_return_attempts.py.)


def test_a_released_message_keeps_its_position_in_the_queue(queue: Queue) -> None:
    first, second, third = queue.publish_many(3)
    claimed = queue.claim(limit=2)

    queue.settle("release", claimed)

    assert [c.id for c in queue.claim()] == [first, second, third]


def test_a_release_leaves_no_entry_in_the_history(queue: Queue) -> None:
    published = queue.publish()

    queue.settle("release", queue.claim())

    assert queue.message(published).history is None


def test_a_release_notifies_another_worker(queue: Queue, listen: Callable[..., Listener]) -> None:
    listener = listen("new_message")
    queue.publish_many(2)
    claimed = queue.claim()
    queue.arm("another")

    queue.settle("release", claimed)

    assert listener.received() == ["t"]


# messages.release_orphaned: releases messages that a worker holds without knowing it.


def test_unknown_messages_are_released_and_known_ones_stay_locked(queue: Queue) -> None:
    known = queue.claim_one(worker="w", topic=_published(queue))
    forgotten = queue.claim_one(worker="w", topic=_published(queue))

    assert queue.call("release_orphaned", "w", [known.id]) == [forgotten.id]
    assert queue.message(forgotten.id).attempts == 0
    assert queue.message(known.id).claim_id == known.claim_id


def test_messages_of_other_workers_are_not_changed(queue: Queue) -> None:
    claimed = queue.claim_one(worker="another", topic=_published(queue))

    assert queue.call("release_orphaned", "w", []) == []
    assert queue.message(claimed.id).locked_by == "another"


def test_nothing_is_released_if_it_is_not_said_what_the_worker_knows(queue: Queue) -> None:
    claimed = queue.claim_one(worker="w", topic=_published(queue))

    assert queue.call("release_orphaned", "w", None) == []
    assert queue.message(claimed.id).claim_id == claimed.claim_id


def _published(queue: Queue) -> str:
    queue.publish()
    return "t"


def test_nothing_to_complete_loses_nothing(queue: Queue) -> None:
    assert queue.call("complete", [], [5]) == []


def test_completing_reads_few_messages_though_its_plan_was_made_while_there_were_none(own_queue: Queue) -> None:
    """Statistics of an empty table make PostgreSQL expect one row: a join would compare each message with each id."""
    own_queue.conn.execute("ALTER TABLE messages.message SET (autovacuum_enabled = off)")
    own_queue.publish_many(2000)
    own_queue.conn.execute("DELETE FROM messages.message")
    own_queue.conn.execute("VACUUM (TRUNCATE off, ANALYZE) messages.message")
    own_queue.publish_many(2000)
    claimed = own_queue.claim(limit=1)

    with own_queue.conn.transaction():
        assert own_queue.settle("complete", claimed) == []
        read = own_queue.value(
            "SELECT idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relid = 'messages.message'::regclass"
        )

    assert read < 100
