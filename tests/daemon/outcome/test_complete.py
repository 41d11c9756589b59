"""ctx.complete(): a handler's effects and the end of its message are committed together.

The transaction is one of its own, on any connection.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.daemon.process import Daemon, Fleet, Journal, end_locks
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

Start = Callable[..., Daemon]
BLOCKING = (
    "psycopg",
    "psycopg cursor",
    "psycopg pool",
    "sqlalchemy",
    "sqlalchemy session",
    "sqlalchemy scoped",
    "django",
)
ASYNC = (
    "psycopg async",
    "asyncpg",
    "asyncpg pool",
    "sqlalchemy async psycopg",
    "sqlalchemy async asyncpg",
    "sqlalchemy async session psycopg",
    "sqlalchemy async session asyncpg",
)
HANDLERS = {"blocking": "own:in_thread", "async": "own:on_the_loop"}
KINDS = [("blocking", each) for each in BLOCKING] + [("async", each) for each in ASYNC]
# One of each library; the other ways into the same ones in the long run.
EACH_LIBRARY = {"psycopg", "sqlalchemy session", "django", "asyncpg"}
KILLED = [each if each[1] in EACH_LIBRARY else pytest.param(*each, marks=pytest.mark.long) for each in KINDS]


@pytest.fixture(autouse=True)
def effect_table(queue: Queue) -> None:
    queue.conn.execute("CREATE TABLE effect (message_id bigint)")


@pytest.fixture
def own(start: Start, database: Database) -> Callable[..., Daemon]:
    """`own({"job": "own:in_thread"})` starts a daemon whose handlers know the database."""

    def begin(topics: Mapping[str, Any], **settings: Any) -> Daemon:
        return start(topics, environ={"RUNS": database.dsn}, **settings)

    return begin


def effects(queue: Queue, message_id: int) -> int:
    return int(queue.value("SELECT count(*) FROM effect WHERE message_id = %s", [message_id]))


def ended(queue: Queue, message_id: int) -> Any:
    return eventually(lambda: queue.archived(message_id))


def test_effects_and_completion_are_committed_together_on_every_connection(own: Start, queue: Queue) -> None:
    own(HANDLERS)

    published = {each: queue.publish(topic, payload={"on": each}) for topic, each in KINDS}

    for each, message_id in published.items():
        archived = ended(queue, message_id)
        assert (each, archived.result, archived.output) == (each, "success", {"stored": message_id})
        assert effects(queue, message_id) == 1


@pytest.mark.long
def test_an_error_in_the_transaction_undoes_both_on_every_connection(own: Start, queue: Queue) -> None:
    own(HANDLERS)

    published = [queue.publish(topic, payload={"on": each, "inside": "raise"}) for topic, each in KINDS]

    for message_id in published:
        archived = ended(queue, message_id)
        assert archived.result == "failed"
        assert archived.error.rstrip().endswith("ValueError: changed my mind")
        assert effects(queue, message_id) == 0


def test_a_lost_lock_is_an_error_and_undoes_the_effects_on_every_connection(
    own: Start, queue: Queue, journal: Journal
) -> None:
    # No heartbeat then cancels them first.
    queue.policy("*", lock_duration="1 hour")
    daemon = own(HANDLERS)
    published = [queue.publish(topic, payload={"on": each, "before": "wait"}) for topic, each in KINDS]
    for message_id in published:
        journal.entry("stored", message_id)

    # As if another worker had it, and this one was not told.
    queue.conn.execute("UPDATE messages.message SET claim_id = claim_id + 1000000")
    daemon.open_gate()

    for message_id in published:
        assert "is not this worker's any more: roll the transaction back" in journal.entry("lost", message_id)["error"]
        daemon.event("message.lock_lost", message_id=message_id)
        assert effects(queue, message_id) == 0
        assert queue.message(message_id) is not None


@pytest.mark.parametrize(("topic", "kind"), KILLED)
def test_a_daemon_that_is_killed_before_and_after_the_commit_has_the_effects_once(
    own: Start, fleet: Fleet, database: Database, queue: Queue, journal: Journal, topic: str, kind: str
) -> None:
    queue.policy(topic, max_attempts=3, lock_expired_delay="0 s")
    first = own(HANDLERS)
    published = queue.publish(topic, payload={"on": kind, "inside": "kill", "after": "kill later"})
    first.exit_code()
    end_locks(queue.conn, first)

    # It may have ended before a test would see that it is armed.
    second = fleet.launch(HANDLERS, dsn=database.dsn, environ={"RUNS": database.dsn})
    second.exit_code()
    queue.call("expire_locks")

    assert queue.archived(published).result == "success"
    assert queue.message(published) is None
    assert [each["attempt"] for each in journal.entries("stored", published)] == [1, 2]
    assert effects(queue, published) == 1


@pytest.mark.long
@pytest.mark.parametrize("handler", ["roll_back", "roll_back_to_savepoint"])
def test_a_handler_that_ends_without_a_commit_has_failed(own: Start, queue: Queue, handler: str) -> None:
    own({"job": f"own:{handler}"})

    archived = ended(queue, queue.publish("job"))

    assert archived.result == "failed"
    assert "ctx.complete() was called, and its transaction was not committed" in archived.error


def test_in_autocommit_mode_the_message_is_completed_at_once(own: Start, queue: Queue) -> None:
    own({"job": "own:autocommit"})

    archived = ended(queue, queue.publish("job"))

    assert (archived.result, archived.output) == ("success", "at once")


def test_a_second_call_does_nothing_and_one_after_a_rollback_completes_again(own: Start, queue: Queue) -> None:
    own({"job": "own:twice"})

    published = queue.publish("job")

    assert ended(queue, published).output == "first"
    assert effects(queue, published) == 1


@pytest.mark.long
def test_a_transaction_that_is_left_open_holds_up_nothing_else(own: Start, queue: Queue) -> None:
    queue.policy("job", max_attempts=2, lock_expired_delay="0 s")
    daemon = own({"job": "own:leave_open", "other": "work:echo"})
    published = queue.publish("job")

    assert "still open" in daemon.event("message.completion_open", message_id=published)["fix"]
    assert ended(queue, queue.publish("other")).result == "success"
    end = "SELECT count(pg_terminate_backend(pid, 30000)) FROM pg_stat_activity WHERE application_name = 'left open'"
    assert queue.value(end) == 1
    queue.conn.execute("UPDATE messages.message SET lock_expires_at = clock_timestamp() WHERE id = %s", [published])
    queue.call("expire_locks")

    assert ended(queue, published).result == "success"


@pytest.mark.long
def test_a_thread_that_overruns_its_timeout_may_still_commit(own: Start, queue: Queue, journal: Journal) -> None:
    queue.policy("job", timeout="3 s")
    daemon = own({"job": "own:overrun", "other": "work:echo"})
    published = queue.publish("job")
    daemon.event("message.completion_open", message_id=published)

    assert ended(queue, queue.publish("other")).result == "success"
    daemon.open_gate()

    journal.entry("done", published)
    assert queue.archived(published).result == "success"
    assert effects(queue, published) == 1


@pytest.mark.long
def test_what_is_not_awaited_fails_the_attempt_and_is_logged(own: Start, queue: Queue) -> None:
    daemon = own({"job": "own:forget", "step": "own:forget_step"})

    published, step = queue.publish("job"), queue.publish("step")

    assert "ctx.complete(...) was not awaited, and completed nothing" in ended(queue, published).error
    assert "ctx.step(...) was not awaited, and did nothing" in ended(queue, step).error
    assert daemon.event("complete.never_awaited", topic="job")["level"] == "error"
    assert daemon.event("step.never_awaited", topic="step")["level"] == "error"


def test_what_does_not_go_together_is_refused(own: Start, queue: Queue, journal: Journal) -> None:
    own(
        {
            "job": "own:refusals",
            "acked": "own:acknowledged",
            "first": {"handler": "own:completed_first", "ack_policy": "ack_first"},
        }
    )

    published = queue.publish("job")
    acked = queue.publish("acked")
    first = queue.publish("first")

    name, inside, transaction, step, ack = journal.entry("refused", published)["found"]
    assert name.startswith("TypeError: ctx.complete needs a psycopg Connection")
    assert inside.startswith("RuntimeError: ctx.transaction() completes the message itself")
    assert transaction.startswith("RuntimeError: ctx.complete() completes the message")
    assert step == "RuntimeError: ctx.step() after ctx.complete(): do all steps before it"
    assert ack == "False"
    assert ended(queue, published).result == "success"
    assert ended(queue, acked).result == "success"
    assert ended(queue, first).result == "success"


def test_messages_that_are_published_in_the_transaction_are_there_once(own: Start, queue: Queue) -> None:
    queue.policy("job", max_attempts=2, backoff='{"kind": "none"}')
    own({"job": "own:with_follower"})

    published = queue.publish("job", payload={"inside": "raise"})

    assert ended(queue, published).result == "success"
    assert queue.value("SELECT count(*) FROM messages.message WHERE topic = 'next'") == 1


def test_a_role_without_the_right_is_told_which_it_needs(own: Start, queue: Queue) -> None:
    queue.conn.execute("DROP ROLE IF EXISTS app")
    queue.conn.execute("CREATE ROLE app NOLOGIN")
    queue.conn.execute("GRANT messages_publisher TO app")
    own({"job": "own:without_right"})
    try:
        refused = ended(queue, queue.publish("job"))
        assert refused.result == "failed"
        assert "permission denied for function complete" in refused.error
        assert "GRANT messages_worker TO this role" in refused.error

        queue.conn.execute("GRANT messages_worker TO app")
        assert ended(queue, queue.publish("job")).result == "success"
    finally:
        queue.conn.execute("DROP OWNED BY app; DROP ROLE app")


@pytest.mark.long
def test_a_child_process_completes_on_its_own_connection(own: Start, queue: Queue) -> None:
    queue.policy("job", max_attempts=3, backoff='{"kind": "none"}')
    daemon = own({"job": {"handler": "own:in_child", "isolation": "process"}})

    plain = queue.publish("job", payload={"on": "psycopg"})
    killed = queue.publish("job", payload={"on": "sqlalchemy session", "inside": "kill", "after": "kill later"})
    raised = queue.publish("job", payload={"on": "psycopg", "after": "raise"})

    for message_id in (plain, killed, raised):
        assert ended(queue, message_id).result == "success"
        assert effects(queue, message_id) == 1
    assert queue.archived(killed).attempts == 2
    daemon.event("message.ended_after_completion", message_id=raised)
    assert daemon.events("message.lock_lost") == []


@pytest.mark.long
def test_a_batch_is_completed_with_its_effects(own: Start, queue: Queue, journal: Journal) -> None:
    policy = {"handler": "own:batch", "batch_size": 3, "batch_timeout": "60s"}
    own({"job": policy})

    one, two, three = (queue.publish("job", payload=json.dumps(each)) for each in ("a", "reject", "b"))

    assert [(ended(queue, each).result, queue.archived(each).output) for each in (one, two, three)] == [
        ("success", "a"),
        ("rejected", None),
        ("success", "b"),
    ]
    assert journal.entry("batch")["counts"] == [False, False, False]
    assert [effects(queue, each) for each in (one, two, three)] == [1, 0, 1]


@pytest.mark.long
def test_a_batch_that_was_not_committed_has_failed(own: Start, queue: Queue) -> None:
    own({"job": {"handler": "own:batch", "batch_size": 2, "batch_timeout": "60s"}})

    published = [queue.publish("job", payload=json.dumps(each)) for each in ("roll back", "reject")]

    assert [ended(queue, each).result for each in published] == ["failed", "rejected"]
    assert "its transaction was not committed" in queue.archived(published[0]).error
    assert effects(queue, published[0]) == 0
