"""`pgrouse token`: the secret is shown once, and never again."""

from __future__ import annotations

import json

from pgrouse.web.access import tokens
from tests.cli.shell import Shell
from tests.sql.queue import Queue


def test_a_token_is_printed_once_and_stored_as_its_digest(pgrouse: Shell, queue: Queue) -> None:
    made = pgrouse("token", "add", "shop", "--role", "publisher", "--topic", "orders.*", "--expires", "90d").out.strip()

    assert tokens.is_well_formed(made)
    assert queue.value("SELECT name FROM messages.check_token(%s)", [tokens.digest(made)]) == "shop"
    listed = pgrouse("token", "list").out
    assert "shop" in listed
    assert made not in listed


def test_tokens_are_listed_with_their_rights(pgrouse: Shell, queue: Queue) -> None:
    for name in ("a", "b", "c"):
        pgrouse("token", "add", name, "--role", "viewer", "--role", "worker")
    pgrouse("token", "revoke", "b")
    queue.conn.execute("UPDATE messages.token SET expires_at = clock_timestamp() WHERE name = 'c'")

    rows = [json.loads(line) for line in pgrouse("token", "list", "--json").out.splitlines()]

    assert [(row["name"], row["state"], row["roles"]) for row in rows] == [
        ("a", "good", ["viewer", "worker"]),
        ("b", "revoked", ["viewer", "worker"]),
        ("c", "expired", ["viewer", "worker"]),
    ]
    assert "digest" not in rows[0]


def test_an_unknown_token_cannot_be_revoked(pgrouse: Shell) -> None:
    ended = pgrouse("token", "revoke", "unknown")

    assert ended.code == 1
    assert 'there is no token "unknown"' in ended.err
