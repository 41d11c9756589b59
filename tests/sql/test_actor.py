"""messages.actor: who is said to have done something."""

from __future__ import annotations

from tests.sql.queue import Queue


def test_it_is_the_user_of_the_session(queue: Queue) -> None:
    assert queue.call("actor") == queue.value("SELECT session_user::text")


def test_a_caller_may_give_itself_a_name_for_a_transaction(queue: Queue) -> None:
    with queue.conn.transaction():
        queue.call("now")
        queue.conn.execute("SELECT set_config('messages.actor', 'ops', true)")
        assert queue.call("actor") == "ops"

    assert queue.call("actor") == queue.value("SELECT session_user::text")


def test_a_name_is_cut_where_it_gets_silly(queue: Queue) -> None:
    with queue.conn.transaction():
        queue.conn.execute("SELECT set_config('messages.actor', repeat('x', 1000), true)")
        assert len(queue.call("actor")) == 200
