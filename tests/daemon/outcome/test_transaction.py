"""ctx.transaction(): a handler's effects in this database and the end of its message are committed together.

They are committed exactly once.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from tests.daemon.locks import LOCKS_ARE_NEVER_ENDED, is_kept
from tests.daemon.process import Daemon, Journal, end_locks
from tests.server.deadline import eventually
from tests.sql.queue import Queue

Start = Callable[..., Daemon]
# Waits until they have ended.
END_IDLE_CONNECTIONS = """
    SELECT count(*) FROM pg_stat_activity AS a
    WHERE a.datname = current_database() AND a.application_name LIKE 'pgrouse handler %%' AND a.state = 'idle'
      AND pg_terminate_backend(a.pid, 30000)
"""


@pytest.fixture(autouse=True)
def effect_table(queue: Queue) -> None:
    queue.conn.execute("CREATE TABLE effect (message_id bigint)")


def effects(queue: Queue, message_id: int) -> int:
    return int(queue.value("SELECT count(*) FROM effect WHERE message_id = %s", [message_id]))


@pytest.mark.parametrize("handler", ["store", "store_in_thread"])
def test_effects_and_completion_are_committed_together(
    start: Start, queue: Queue, journal: Journal, handler: str
) -> None:
    start({"job": f"effects:{handler}"})

    published = queue.publish("job")

    journal.entry("done", published)
    archived = queue.archived(published)
    assert (archived.result, archived.output) == ("success", {"stored": published})
    assert effects(queue, published) == 1


def test_statements_in_a_pipeline_are_committed_with_the_completion(
    start: Start, queue: Queue, journal: Journal
) -> None:
    start({"job": "effects:store_in_pipeline"})

    published = queue.publish("job")

    journal.entry("done", published)
    assert queue.archived(published).result == "success"
    assert effects(queue, published) == 3


@pytest.mark.parametrize("handler", ["store_and_raise", "store_in_thread_and_raise"])
def test_an_exception_in_the_block_rolls_back_the_effects_and_fails_the_attempt(
    start: Start, queue: Queue, handler: str
) -> None:
    start({"job": f"effects:{handler}"})

    published = queue.publish("job")

    archived = eventually(lambda: queue.archived(published))
    assert archived.result == "failed"
    assert archived.error.rstrip().endswith("ValueError: changed my mind")
    assert effects(queue, published) == 0


@pytest.mark.parametrize("handler", ["store_slowly", "store_slowly_in_thread"])
def test_effects_are_rolled_back_if_the_lock_was_lost(
    start: Start, queue: Queue, journal: Journal, handler: str
) -> None:
    daemon = start({"job": f"effects:{handler}"})
    published = queue.publish("job")
    journal.entry("stored", published)

    queue.call("cancel", [published])
    daemon.open_gate()

    eventually(lambda: journal.entries("cancelled", published) or journal.entries("broken", published))
    assert effects(queue, published) == 0
    assert queue.archived(published).result == "cancelled"


@pytest.mark.parametrize("handler", ["store", "store_in_thread"])
def test_a_connection_that_ended_while_it_was_idle_costs_no_attempt(
    start: Start, queue: Queue, journal: Journal, handler: str
) -> None:
    queue.policy("job", max_attempts=1)
    start({"job": f"effects:{handler}"})
    journal.entry("done", queue.publish("job"))

    assert queue.value(END_IDLE_CONNECTIONS) == 1
    published = queue.publish("job")

    journal.entry("done", published)
    assert queue.archived(published).result == "success"


def test_effects_of_a_daemon_killed_after_the_commit_remain(start: Start, queue: Queue, journal: Journal) -> None:
    queue.policy("job", max_attempts=2, lock_expired_delay="0 s")
    first = start({"job": "effects:die_after"})
    published = queue.publish("job")
    first.exit_code()
    end_locks(queue.conn, first)

    start({"job": "effects:die_after"})
    queue.call("expire_locks")

    assert queue.archived(published).result == "success"
    assert queue.message(published) is None
    assert len(journal.entries("stored", published)) == 1
    assert effects(queue, published) == 1


@pytest.mark.long
def test_a_handler_may_run_longer_than_its_lock_after_its_transaction(
    start: Start, queue: Queue, journal: Journal
) -> None:
    queue.policy("*", lock_duration="1 s")
    daemon = start({"job": "effects:go_on", "other": "holding:hold"}, **LOCKS_ARE_NEVER_ENDED)
    published = queue.publish("job")
    journal.entry("done", published)
    other = queue.publish("other")
    journal.entry("start", other)

    assert is_kept(queue, other, timedelta(seconds=1))
    daemon.open_gate()

    journal.entry("end", published)
    assert journal.entries("cancelled", published) == []
    assert daemon.events("message.lock_lost") == []


@pytest.mark.parametrize("handler", ["learn_late", "learn_late_in_thread"])
def test_a_handler_that_learns_of_its_commit_late_has_not_lost_its_lock(
    start: Start, queue: Queue, journal: Journal, handler: str
) -> None:
    queue.policy("*", lock_duration="1 s")
    daemon = start({"job": f"effects:{handler}", "other": "holding:hold"}, **LOCKS_ARE_NEVER_ENDED)
    published = queue.publish("job")
    journal.entry("committed", published)
    other = queue.publish("other")
    journal.entry("start", other)

    assert is_kept(queue, other, timedelta(seconds=1))
    daemon.open_gate()

    journal.entry("end", published)
    eventually(lambda: queue.archived(other))
    assert journal.entries("cancelled", published) == []
    assert daemon.events("message.lock_lost") == []
    assert (queue.archived(published).result, effects(queue, published)) == ("success", 1)


@pytest.mark.parametrize("handler", ["refused", "refused_in_thread"])
def test_a_lock_that_is_lost_after_a_refused_commit_is_noticed(
    start: Start, queue: Queue, journal: Journal, handler: str
) -> None:
    daemon = start({"job": f"effects:{handler}"})
    published = queue.publish("job")
    journal.entry("refused", published)

    queue.conn.execute("UPDATE messages.message SET lock_expires_at = clock_timestamp() - interval '1 s'")
    queue.call("expire_locks")

    daemon.event("message.lock_lost", message_id=published)
    daemon.open_gate()
    assert queue.archived(published).result == "lock_expired"


def test_an_error_after_the_commit_is_logged_and_changes_nothing(start: Start, queue: Queue) -> None:
    queue.policy("job", max_attempts=3)
    daemon = start({"job": "effects:raise_after"})

    published = queue.publish("job")

    event = daemon.event("message.ended_after_completion", message_id=published)
    assert event["reason"].rstrip().endswith("ValueError: too late")
    assert queue.archived(published).result == "success"
    assert effects(queue, published) == 1


def test_a_second_transaction_of_one_message_is_refused(start: Start, queue: Queue) -> None:
    daemon = start({"job": "effects:store_twice"})

    published = queue.publish("job")

    event = daemon.event("message.ended_after_completion", message_id=published)
    assert "do all its writes in one ctx.transaction()" in event["reason"]
    assert effects(queue, published) == 1


@pytest.mark.long
def test_a_handler_in_a_child_process_has_no_transaction(start: Start, queue: Queue) -> None:
    start({"job": {"handler": "effects:store_from_a_child", "isolation": "process"}})

    published = queue.publish("job")

    archived = eventually(lambda: queue.archived(published))
    assert archived.result == "failed"
    assert "open a connection of your own" in archived.error
