"""messages.check_token: the name, roles and topics of a token."""

from __future__ import annotations

from datetime import timedelta

from tests.sql.queue import Queue

DIGEST = bytes(32)


def check(queue: Queue, digest: bytes = DIGEST) -> list[str]:
    return [row.name for row in queue.rows("SELECT * FROM messages.check_token(%s)", [digest])]


def test_it_returns_the_token_its_roles_and_topics(queue: Queue) -> None:
    queue.call("add_token", "shop", DIGEST, ["publisher"], ["orders.*"])

    found = queue.row("SELECT * FROM messages.check_token(%s)", [DIGEST])

    assert (found.name, found.roles, found.topics) == ("shop", ["publisher"], ["orders.*"])


def test_an_unknown_or_expired_token_returns_nothing(queue: Queue) -> None:
    queue.call("add_token", "shop", DIGEST, ["publisher"], ["*"], timedelta(seconds=1))
    queue.row("UPDATE messages.token SET expires_at = clock_timestamp() RETURNING 1")

    assert check(queue) == []
    assert check(queue, b"x" * 32) == []


def test_the_last_use_is_recorded_at_most_every_five_minutes(queue: Queue) -> None:
    queue.call("add_token", "shop", DIGEST, ["publisher"])
    check(queue)
    first = queue.value("SELECT last_used_at FROM messages.token")
    check(queue)
    assert queue.value("SELECT last_used_at FROM messages.token") == first

    queue.row("UPDATE messages.token SET last_used_at = last_used_at - interval '6 minutes' RETURNING 1")
    check(queue)
    assert queue.value("SELECT last_used_at FROM messages.token") > first
