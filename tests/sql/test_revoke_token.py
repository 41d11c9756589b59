"""messages.revoke_token: a token and its sessions are invalid from then on."""

from __future__ import annotations

from datetime import timedelta

import pytest
from psycopg import errors

from tests.sql.queue import Queue

DIGEST, COOKIE = bytes(32), b"c" * 32


def test_the_token_and_its_sessions_are_no_longer_valid(queue: Queue) -> None:
    queue.call("add_token", "shop", DIGEST, ["viewer"])
    queue.call("open_session", DIGEST, COOKIE, timedelta(hours=1))

    assert queue.call("revoke_token", "shop") is True

    assert queue.rows("SELECT * FROM messages.check_token(%s)", [DIGEST]) == []
    assert queue.rows("SELECT * FROM messages.check_session(%s)", [COOKIE]) == []
    assert queue.call("open_session", DIGEST, b"d" * 32, timedelta(hours=1)) is False
    assert [row.action for row in queue.rows("SELECT action FROM messages.audit ORDER BY id")] == [
        "add_token",
        "revoke_token",
    ]


def test_a_second_call_returns_false_and_keeps_the_time(queue: Queue) -> None:
    queue.call("add_token", "shop", DIGEST, ["viewer"])
    queue.call("revoke_token", "shop")
    since = queue.value("SELECT revoked_at FROM messages.token")

    assert queue.call("revoke_token", "shop") is False
    assert queue.value("SELECT revoked_at FROM messages.token") == since


def test_an_unknown_token_is_an_error(queue: Queue) -> None:
    with pytest.raises(errors.NoDataFound, match='there is no token "nope"'):
        queue.call("revoke_token", "nope")
