"""messages.check_session: the token of a session's cookie."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.sql.queue import Queue

DIGEST, COOKIE = bytes(32), b"c" * 32


def test_a_session_has_the_rights_of_its_token_until_it_ends(queue: Queue) -> None:
    queue.call("add_token", "shop", DIGEST, ["operator"], ["orders.*"])
    queue.call("open_session", DIGEST, COOKIE, timedelta(hours=1))

    found = queue.row("SELECT * FROM messages.check_session(%s)", [COOKIE])
    assert (found.name, found.roles, found.topics) == ("shop", ["operator"], ["orders.*"])

    queue.row("UPDATE messages.web_session SET expires_at = clock_timestamp() RETURNING 1")
    assert queue.rows("SELECT * FROM messages.check_session(%s)", [COOKIE]) == []


@pytest.mark.parametrize("end", ["revoked_at", "expires_at"])
def test_it_ends_with_its_token(queue: Queue, end: str) -> None:
    queue.call("add_token", "shop", DIGEST, ["operator"])
    queue.call("open_session", DIGEST, COOKIE, timedelta(hours=1))

    queue.conn.execute(f"UPDATE messages.token SET {end} = clock_timestamp()".encode())

    assert queue.rows("SELECT * FROM messages.check_session(%s)", [COOKIE]) == []
