"""messages.reencrypt: what waits gets the same contents under another key."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg import errors
from psycopg.types.json import Jsonb

from tests.server.postgres import Database
from tests.sql.queue import Listener, Queue

MARK = "pgrouse-encrypted-by"
OLD, NEW = b"\x93PGR old", b"\x93PGR new"
STATE = {"data": "b2xk", MARK: "old"}


def seen(body: bytes | None, state: str | None = None) -> str:
    md5 = [hashlib.md5(each).hexdigest() if each is not None else "" for each in (body, state and state.encode())]
    return hashlib.md5("".join(md5).encode()).hexdigest()


def sealed(queue: Queue, **more: Any) -> int:
    return queue.publish(body=OLD, headers={"a": 1, MARK: "old"}, **more)


def reseal(
    queue: Queue, published: int, was: str | None = None, body: bytes | None = NEW, state: Any = None
) -> list[int]:
    values = [[published], [was or seen(OLD)], [body], [state], "new"]
    found: list[int] = queue.value("SELECT messages.reencrypt(%s, %s, %s::bytea[], %s::jsonb[], %s)", values)
    return found


def test_it_has_the_new_bytes_the_name_of_the_key_and_all_else_of_the_old(queue: Queue) -> None:
    published = sealed(queue, key="k", priority=2)
    before = queue.message(published)

    assert reseal(queue, published) == [published]

    assert queue.message(published) == before._replace(body=NEW, headers={"a": 1, MARK: "new"})


def test_a_checkpoint_is_replaced_with_it_or_alone(queue: Queue) -> None:
    queue.policy(max_attempts=3)
    published = sealed(queue)
    queue.settle("retry", queue.claim(), ["e"], [None], [Jsonb(STATE)])
    text = queue.value("SELECT state::text FROM messages.message")

    fresh = {"data": "bmV3", MARK: "new"}
    assert reseal(queue, published, seen(OLD, text), None, Jsonb(fresh)) == [published]

    after = queue.message(published)
    assert (after.body, after.state, after.headers) == (OLD, fresh, {"a": 1, MARK: "old"})


def test_what_runs_is_left_alone(queue: Queue) -> None:
    published = sealed(queue)
    queue.claim()

    assert reseal(queue, published) == []
    assert queue.message(published).body == OLD


def test_what_somebody_holds_is_not_waited_for(queue: Queue, database: Database) -> None:
    published = sealed(queue)
    with database.connect().transaction() as held:
        held.connection.execute("SELECT FROM messages.message FOR UPDATE")

        assert reseal(queue, published) == []


def test_somebody_who_waits_for_its_end_with_his_transaction_open_keeps_it_from_nothing(
    queue: Queue, other: Queue
) -> None:
    published = sealed(queue)

    with other.conn.transaction():
        other.rows("SELECT FROM messages.wait_for(%s)", [published])
        assert reseal(queue, published) == [published]


def test_what_was_changed_meanwhile_is_left_alone(queue: Queue) -> None:
    published = sealed(queue)

    assert reseal(queue, published, seen(b"\x93PGR other")) == []


@pytest.mark.parametrize(("was", "becomes"), [(b"plain", NEW), (OLD, b"plain")])
def test_nothing_but_envelopes_is_written_over_envelopes(queue: Queue, was: bytes, becomes: bytes) -> None:
    published = queue.publish(body=was)

    assert reseal(queue, published, seen(was), becomes) == []
    assert queue.message(published).body == was


def test_a_sleeper_is_rung_since_a_claim_may_have_passed_them_over(
    queue: Queue, listen: Callable[..., Listener]
) -> None:
    published = sealed(queue)
    queue.arm()
    listener = listen("new_message")

    reseal(queue, published)

    assert listener.received() == ["t"]


def test_what_is_no_name_of_a_key_is_refused(queue: Queue) -> None:
    with pytest.raises(errors.InvalidParameterValue, match='key of a reseal is "a b"'):
        queue.value("SELECT messages.reencrypt('{}', '{}', '{}', '{}', 'a b')")


def test_it_is_noted_once_for_a_batch(queue: Queue) -> None:
    published = sealed(queue)

    reseal(queue, published)

    assert queue.row("SELECT action, topic, detail ->> 'count' AS count FROM messages.audit") == ("reencrypt", "t", "1")


def test_its_cost_is_that_of_the_batch(queue: Queue, db: psycopg.Connection[Any]) -> None:
    published = sealed(queue)
    queue.publish_many(5000)
    db.execute("ANALYZE messages.message")
    values = [[published], [seen(OLD)], [NEW], [None], "new"]

    assert queue.buffers("SELECT messages.reencrypt(%s, %s, %s::bytea[], %s::jsonb[], %s)", values) < 400
