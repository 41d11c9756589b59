"""messages.lock_policies: a session that reads the policies and then writes the differences is alone with them."""

from __future__ import annotations

import pytest
from psycopg import errors

from tests.sql.queue import Queue


def test_no_policy_is_changed_while_it_is_held(queue: Queue, other: Queue) -> None:
    other.conn.execute("SET lock_timeout = '10ms'")
    with queue.conn.transaction():
        queue.call("lock_policies")

        with pytest.raises(errors.LockNotAvailable):
            other.policy(ttl="1 s")
        queue.policy(ttl="2 s")

    other.policy(ttl="1 s")


def test_an_operator_may_call_it_and_a_worker_may_not(queue: Queue) -> None:
    with queue.conn.transaction(force_rollback=True):
        queue.conn.execute("SET LOCAL ROLE messages_operator")
        queue.call("lock_policies")
    with queue.conn.transaction(force_rollback=True):
        queue.conn.execute("SET LOCAL ROLE messages_worker")
        with pytest.raises(errors.InsufficientPrivilege):
            queue.call("lock_policies")
