"""messages.actor: the name that the audit log records for an action."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_the_default_is_the_user_of_the_session(queue: Queue) -> None:
    assert queue.call("actor") == queue.value("SELECT session_user::text")


def test_a_caller_may_set_a_name_for_a_transaction(queue: Queue) -> None:
    with queue.conn.transaction():
        queue.call("now")
        queue.conn.execute("SELECT set_config('messages.actor', 'ops', true)")
        assert queue.call("actor") == "ops"

    assert queue.call("actor") == queue.value("SELECT session_user::text")


def test_a_long_name_is_cut(queue: Queue) -> None:
    with queue.conn.transaction():
        queue.conn.execute("SELECT set_config('messages.actor', repeat('x', 1000), true)")
        assert len(queue.call("actor")) == 200
