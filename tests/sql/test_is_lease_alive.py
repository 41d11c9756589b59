"""messages.is_lease_alive: whether the session that took a lease still lives."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue

pytestmark = pytest.mark.every_server

IS_LEASED = "SELECT messages.is_lease_alive(('export', 'n', %s, %s, now())::messages.lease)"


@pytest.mark.parametrize("key", [1, 4294967295, 4294967296, 4503599627370496])
def test_only_that_process_with_that_key_is_alive(own_queue: Queue, key: int) -> None:
    pid = own_queue.conn.info.backend_pid
    own_queue.value("SELECT pg_advisory_lock(%s)", [key])

    assert own_queue.value(IS_LEASED, [key, pid]) is True
    assert own_queue.value(IS_LEASED, [key + 1, pid]) is False
    assert own_queue.value(IS_LEASED, [key, pid + 1]) is False


def test_the_two_halves_of_a_key_as_separate_locks_do_not_count(own_queue: Queue) -> None:
    own_queue.value("SELECT pg_advisory_lock(1, 2)")

    assert own_queue.value(IS_LEASED, [(1 << 32) + 2, own_queue.conn.info.backend_pid]) is False
