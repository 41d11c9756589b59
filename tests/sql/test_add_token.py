"""messages.add_token: a token is identified by its digest, and by nothing else."""

from __future__ import annotations

from datetime import timedelta

import pytest
from psycopg import errors

from tests.sql.queue import Queue

DIGEST = bytes(32)


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
