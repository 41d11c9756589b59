"""messages.unlock_export: releases an export for another session."""

from __future__ import annotations

from tests.server.postgres import Database
from tests.sql.queue import Queue


def test_another_session_may_lock_it_then(own_queue: Queue, own_database: Database) -> None:
    second = Queue(own_database.connect())
    own_queue.conn.execute("SET ROLE messages_operator")
    own_queue.call("lock_export", "n")

    assert second.call("unlock_export", "n") is False
    assert own_queue.call("unlock_export", "n") is True
    assert second.call("lock_export", "n") is True
