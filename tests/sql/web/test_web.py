"""Tokens, sessions and idempotent requests of the web server."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from psycopg import errors

from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

# messages.add_token: a token is identified by its digest, and by nothing else.

DIGEST, COOKIE = bytes(32), b"c" * 32


def test_it_stores_name_roles_topics_and_expiry(queue: Queue) -> None:
    queue.call("add_token", "shop", DIGEST, ["publisher", "viewer"], ["orders.*", "mail"], timedelta(days=1))

    token = queue.row("SELECT t.*, t.expires_at - t.created_at AS lasts FROM messages.token AS t")
    assert (token.name, token.digest, token.roles, token.topics) == (
        "shop",
        DIGEST,
        ["publisher", "viewer"],
        ["orders.*", "mail"],
    )
    assert abs(token.lasts - timedelta(days=1)) < timedelta(minutes=1)
    assert token.created_by == queue.value("SELECT session_user::text")
    recorded = queue.row("SELECT * FROM messages.audit")
    assert (recorded.action, recorded.target, recorded.detail["roles"]) == (
        "add_token",
        "shop",
        ["publisher", "viewer"],
    )


def test_the_default_is_all_topics_without_an_expiry(queue: Queue) -> None:
    queue.call("add_token", "root", DIGEST, ["operator"])

    assert queue.value("SELECT topics FROM messages.token") == ["*"]
    assert queue.value("SELECT expires_at IS NULL FROM messages.token")


def test_a_name_cannot_be_used_twice_even_after_it_was_revoked(queue: Queue) -> None:
    queue.call("add_token", "shop", DIGEST, ["viewer"])
    queue.call("revoke_token", "shop")

    with pytest.raises(errors.UniqueViolation, match='there is a token "shop" already'):
        queue.call("add_token", "shop", b"1" * 32, ["viewer"])


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"p_name": "a b"}, "name"),
        ({"p_name": None}, "name"),
        ({"p_digest": b"short"}, "digest"),
        ({"p_roles": []}, "roles"),
        ({"p_roles": ["king"]}, "roles"),
        ({"p_topics": []}, "topics"),
        ({"p_topics": ["*.orders"]}, "topics"),
        ({"p_topics": [None]}, "topics"),
        ({"p_expires": timedelta(0)}, "expires"),
    ],
)
def test_invalid_arguments_are_refused(queue: Queue, wrong: dict[str, object], what: str) -> None:
    given = {"p_name": "n", "p_digest": DIGEST, "p_roles": ["viewer"], **wrong}
    call = ", ".join(f"{name} => %({name})s" for name in given)

    with pytest.raises(errors.InvalidParameterValue, match=what):
        queue.row(f"SELECT messages.add_token({call})", given)


# messages.check_token: the name, roles and topics of a token.


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


# messages.revoke_token: a token and its sessions are invalid from then on.


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


# messages.check_session: the token of a session's cookie.


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


# messages.close_session: a cookie is invalid once its session is closed.


def test_it_closes_a_session_once(queue: Queue) -> None:
    queue.call("add_token", "shop", DIGEST, ["viewer"])
    queue.call("open_session", DIGEST, COOKIE, timedelta(hours=1))

    assert queue.call("close_session", COOKIE) is True
    assert queue.rows("SELECT * FROM messages.check_session(%s)", [COOKIE]) == []
    assert queue.call("close_session", COOKIE) is False


# messages.open_session: a valid token opens a session, no longer than the token lasts.


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
        SELECT sha256(n::text::bytea), 'shop', clock_timestamp() - n * interval '1 s',
               clock_timestamp() + interval '1 hour'
        FROM generate_series(1, 1000) AS n"""
    queue.conn.execute(old)

    queue.call("open_session", DIGEST, COOKIE, timedelta(hours=1))

    assert queue.value("SELECT count(*) FROM messages.web_session WHERE token = 'shop'") == 1000
    assert queue.rows("SELECT FROM messages.web_session WHERE digest = sha256('1000')") == []
    assert len(queue.rows("SELECT FROM messages.check_session(%s)", [COOKIE])) == 1
    assert len(queue.rows("SELECT FROM messages.check_session(%s)", [b"f" * 32])) == 1


# messages.open_user_session: a user whom a provider has identified has the rights of this login.

OPEN = "SELECT messages.open_user_session(%s, %s, %s, %s, %s)"


def test_a_user_has_the_rights_of_the_login_until_it_ends(queue: Queue) -> None:
    queue.row(OPEN, ["oidc:ada", COOKIE, ["viewer"], ["orders.*"], timedelta(hours=1)])
    queue.row(OPEN, ["oidc:ada", b"d" * 32, ["operator"], ["*"], timedelta(hours=1)])

    found = queue.row("SELECT * FROM messages.check_session(%s)", [COOKIE])
    assert (found.name, found.roles, found.topics) == ("oidc:ada", ["viewer"], ["orders.*"])

    queue.conn.execute("UPDATE messages.web_session SET expires_at = clock_timestamp()")
    assert queue.rows("SELECT * FROM messages.check_session(%s)", [COOKIE]) == []


@pytest.mark.parametrize(
    ("user", "roles", "topics", "lasts"),
    [
        ("", ["viewer"], ["*"], "1h"),
        ("a\u200bb", ["viewer"], ["*"], "1h"),
        (None, ["viewer"], ["*"], "1h"),
        ("ada", ["king"], ["*"], "1h"),
        ("ada", [], ["*"], "1h"),
        ("ada", ["viewer"], [], "1h"),
        ("ada", ["viewer"], ["*"], None),
    ],
)
def test_no_session_is_opened_with_other_rights_or_without_an_end(
    queue: Queue, user: str | None, roles: list[str], topics: list[str], lasts: str | None
) -> None:
    with pytest.raises(errors.InvalidParameterValue):
        queue.row(OPEN, [user, COOKIE, roles, topics, lasts])


def test_a_user_has_a_thousand_sessions_at_most_and_the_oldest_ends(queue: Queue) -> None:
    old = """
        INSERT INTO messages.web_session (digest, user_name, roles, topics, opened_at, expires_at)
        SELECT sha256(n::text::bytea), 'ada', '{viewer}', '{*}', clock_timestamp() - n * interval '1 s',
               clock_timestamp() + interval '1 hour'
        FROM generate_series(1, 1000) AS n"""
    queue.conn.execute(old)

    queue.row(OPEN, ["ada", COOKIE, ["viewer"], ["*"], timedelta(hours=1)])

    assert queue.value("SELECT count(*) FROM messages.web_session") == 1000
    assert queue.rows("SELECT FROM messages.web_session WHERE digest = sha256('1000')") == []


# messages.begin_request: a request is executed once, however often it is sent, also at the same time.

BEGIN = "SELECT * FROM messages.begin_request('shop', 'k', %s)"


def begin(queue: Queue, digest: bytes = b"1") -> list[tuple[int, str]]:
    return [(row.status, row.answer) for row in queue.rows(BEGIN, [digest])]


def test_the_first_call_executes_it_and_the_second_gets_its_answer(queue: Queue) -> None:
    assert begin(queue) == []
    queue.call("end_request", "shop", "k", 201, '{"id": 1}')

    assert begin(queue) == [(201, '{"id": 1}')]


def test_each_caller_has_separate_keys(queue: Queue) -> None:
    begin(queue)

    assert queue.rows("SELECT * FROM messages.begin_request('other', 'k', '1')") == []


def test_another_request_with_the_same_key_is_an_error(queue: Queue) -> None:
    begin(queue)

    with pytest.raises(errors.InvalidParameterValue, match="came with another request before"):
        begin(queue, b"2")


def test_of_two_concurrent_calls_the_second_waits_and_executes_it_if_the_first_fails(
    queue: Queue, database: Database
) -> None:
    with database.connect() as first:
        first.execute("BEGIN")
        first.execute(BEGIN, [b"1"])
        found: list[list[tuple[int, str]]] = []
        other = threading.Thread(target=lambda: found.append(begin(Queue(database.connect()))))
        other.start()
        eventually(lambda: queue.value("SELECT count(*) FROM pg_locks WHERE NOT granted") > 0)
        first.execute("ROLLBACK")
        other.join(60)

    assert found == [[]]
