"""messages.prune_web: deletes old sessions and requests of the web servers."""

from __future__ import annotations

from datetime import timedelta

from tests.sql.queue import Queue


def test_expired_sessions_and_requests_older_than_a_day_are_deleted_and_the_others_stay(queue: Queue) -> None:
    queue.call("add_token", "shop", bytes(32), ["viewer"])
    for cookie in (b"a" * 32, b"b" * 32):
        queue.call("open_session", bytes(32), cookie, timedelta(hours=1))
    queue.row(
        "UPDATE messages.web_session SET expires_at = clock_timestamp() WHERE digest = %s RETURNING 1", [b"a" * 32]
    )
    for key in ("old", "new"):
        queue.rows("SELECT * FROM messages.begin_request(%s, %s, %s)", ["shop", key, b"1"])
    queue.row("UPDATE messages.web_request SET asked_at = asked_at - interval '25 hours' WHERE key = 'old' RETURNING 1")

    assert queue.call("prune_web") == 2

    assert [row.key for row in queue.rows("SELECT key FROM messages.web_request")] == ["new"]
    assert queue.value("SELECT count(*) FROM messages.web_session") == 1


def test_the_tick_calls_it(queue: Queue) -> None:
    queue.rows("SELECT * FROM messages.begin_request(%s, %s, %s)", ["shop", "old", b"1"])
    queue.row("UPDATE messages.web_request SET asked_at = asked_at - interval '25 hours' RETURNING 1")

    queue.rows("SELECT * FROM messages.tick()")

    assert queue.rows("SELECT FROM messages.web_request") == []
