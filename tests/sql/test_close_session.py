"""messages.close_session: a cookie is invalid once its session is closed."""

from __future__ import annotations

from datetime import timedelta

from tests.sql.queue import Queue

DIGEST, COOKIE = bytes(32), b"c" * 32


def test_it_closes_a_session_once(queue: Queue) -> None:
    queue.call("add_token", "shop", DIGEST, ["viewer"])
    queue.call("open_session", DIGEST, COOKIE, timedelta(hours=1))

    assert queue.call("close_session", COOKIE) is True
    assert queue.rows("SELECT * FROM messages.check_session(%s)", [COOKIE]) == []
    assert queue.call("close_session", COOKIE) is False
