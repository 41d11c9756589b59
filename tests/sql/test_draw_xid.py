"""messages.draw_xid: a transaction id that is greater than that of every INSERT in progress. (The protocol: test_new_message.py.)"""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue

pytestmark = pytest.mark.every_server


def test_it_is_the_id_of_its_own_transaction(queue: Queue) -> None:
    with queue.conn.transaction():
        assert queue.call("draw_xid") == int(queue.value("SELECT pg_current_xact_id()"))


def test_it_is_greater_than_the_id_of_every_earlier_insert(queue: Queue, other: Queue) -> None:
    with other.conn.transaction():
        other.publish()
        assert queue.call("draw_xid") > int(other.value("SELECT pg_current_xact_id()"))
