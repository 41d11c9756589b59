"""messages.oldest_running_xid: all transactions with a lower id have ended. (The protocol is in test_new_message.py.)"""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue

pytestmark = pytest.mark.every_server


def test_it_does_not_pass_a_running_transaction(queue: Queue, other: Queue) -> None:
    with other.conn.transaction():
        running = other.call("draw_xid")
        assert queue.call("oldest_running_xid") <= running

    assert queue.call("oldest_running_xid") > running


def test_a_reader_without_a_transaction_id_does_not_hold_it_back(queue: Queue, other: Queue) -> None:
    with other.conn.transaction():
        other.ids()
        own = queue.call("draw_xid")

        assert queue.call("oldest_running_xid") > own
