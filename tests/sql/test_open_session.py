"""messages.open_session: a valid token opens a session, no longer than the token lasts."""

from __future__ import annotations

from datetime import timedelta

from tests.sql.queue import Queue

DIGEST, COOKIE = bytes(32), b"c" * 32


def test_it_lasts_for_the_requested_time(queue: Queue) -> None:
    queue.call("add_token", "shop", DIGEST, ["viewer"])

    assert queue.call("open_session", DIGEST, COOKIE, timedelta(hours=1)) is True

    lasts = queue.value("SELECT expires_at - opened_at FROM messages.web_session")
    assert timedelta(minutes=59) < lasts <= timedelta(minutes=61)


def test_it_ends_with_the_token(queue: Queue) -> None:
    queue.call("add_token", "shop", DIGEST, ["viewer"], ["*"], timedelta(minutes=5))

    queue.call("open_session", DIGEST, COOKIE, timedelta(hours=1))

    assert queue.value("SELECT s.expires_at = t.expires_at FROM messages.web_session AS s, messages.token AS t")


def test_an_unknown_token_opens_nothing(queue: Queue) -> None:
    assert queue.call("open_session", DIGEST, COOKIE, timedelta(hours=1)) is False
    assert queue.rows("SELECT FROM messages.web_session") == []


def test_a_token_has_a_thousand_sessions_at_most_and_the_oldest_ends(queue: Queue) -> None:
    queue.call("add_token", "shop", DIGEST, ["viewer"])
    queue.call("add_token", "other", b"o" * 32, ["viewer"])
    queue.call("open_session", b"o" * 32, b"f" * 32, timedelta(hours=1))
    old = """
        INSERT INTO messages.web_session (digest, token, opened_at, expires_at)
        SELECT sha256(n::text::bytea), 'shop', clock_timestamp() - n * interval '1 s', clock_timestamp() + interval '1 hour'
        FROM generate_series(1, 1000) AS n"""
    queue.conn.execute(old)

    queue.call("open_session", DIGEST, COOKIE, timedelta(hours=1))

    assert queue.value("SELECT count(*) FROM messages.web_session WHERE token = 'shop'") == 1000
    assert queue.rows("SELECT FROM messages.web_session WHERE digest = sha256('1000')") == []
    assert len(queue.rows("SELECT FROM messages.check_session(%s)", [COOKIE])) == 1
    assert len(queue.rows("SELECT FROM messages.check_session(%s)", [b"f" * 32])) == 1
