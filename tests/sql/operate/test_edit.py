"""messages.edit and messages.reencrypt."""

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

# messages.edit: a waiting message gets another payload.


def edit(
    queue: Queue, message_id: int, payload: str | None = None, headers: str | None = None, seen: str | None = None
) -> str:
    outcome: str = queue.value(
        "SELECT messages.edit(%s, %s::jsonb, %s::jsonb, %s)", [message_id, payload, headers, seen]
    )
    return outcome


def test_it_replaces_the_payload_and_keeps_all_else(queue: Queue) -> None:
    published = queue.publish(key="k", priority=2, headers={"a": 1})
    before = queue.message(published)

    assert edit(queue, published, '{"n": 2}') == "edited"

    after = queue.message(published)
    assert after == before._replace(payload={"n": 2}, content_bytes=len('{"n": 2}{"a": 1}'))


def test_a_payload_replaces_bytes_and_headers_alone_keep_them(queue: Queue) -> None:
    published = queue.publish(body=b"\x01")

    assert edit(queue, published, headers='{"b": 2}') == "edited"
    assert (queue.message(published).body, queue.message(published).headers) == (b"\x01", {"b": 2})
    assert edit(queue, published, "null") == "edited"
    assert (queue.message(published).body, queue.value("SELECT payload::text FROM messages.message")) == (None, "null")


def test_an_envelope_is_not_replaced_by_an_unencrypted_payload_even_if_no_header_names_its_key(queue: Queue) -> None:
    published = queue.publish(body=b"\x93PGR\x01")

    with pytest.raises(errors.InvalidParameterValue, match=f"message {published} is encrypted"):
        edit(queue, published, "2")
    assert edit(queue, published, headers='{"b": 2}') == "edited"


def test_a_running_message_is_left_alone(queue: Queue) -> None:
    published = queue.publish()
    queue.claim()

    assert edit(queue, published, "2") == "running"
    assert queue.message(published).payload == 1


def test_an_id_without_a_live_message_returns_ended(queue: Queue) -> None:
    assert edit(queue, 4711, "2") == "ended"


def test_of_two_concurrent_edits_neither_overwrites_the_other(queue: Queue) -> None:
    published = queue.publish()
    seen = queue.value("SELECT md5(payload::text) FROM messages.message")

    assert edit(queue, published, "2", seen=seen) == "edited"
    assert edit(queue, published, "3", seen=seen) == "changed"
    assert queue.message(published).payload == 2


def test_a_payload_larger_than_the_limit_of_the_topic_is_refused(queue: Queue) -> None:
    queue.policy(max_payload_bytes=10)
    published = queue.publish()

    with pytest.raises(errors.Error) as refused:
        edit(queue, published, '"0123456789"')
    assert refused.value.sqlstate == "PGR04"


def test_headers_that_are_not_an_object_are_refused(queue: Queue) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="headers of an edit are a JSON array"):
        edit(queue, queue.publish(), headers="[]")


def test_an_open_transaction_that_waits_for_the_message_does_not_block_an_edit(queue: Queue, other: Queue) -> None:
    published = queue.publish()

    with other.conn.transaction():
        other.rows("SELECT FROM messages.wait_for(%s)", [published])
        queue.conn.execute("SET lock_timeout = '1s'")
        assert queue.call("edit", published, {"n": 2}) == "edited"
    queue.conn.execute("RESET lock_timeout")


# messages.reencrypt: stores a waiting message's contents under another key.

MARK = "pgrouse-encrypted-by"
OLD, NEW = b"\x93PGR old", b"\x93PGR new"
STATE = {"data": "b2xk", MARK: "old"}


def seen(body: bytes | None, state: str | None = None) -> str:
    md5 = [hashlib.md5(each).hexdigest() if each is not None else "" for each in (body, state and state.encode())]
    return hashlib.md5("".join(md5).encode()).hexdigest()


def encrypted(queue: Queue, **more: Any) -> int:
    return queue.publish(body=OLD, headers={"a": 1, MARK: "old"}, **more)


def reencrypt(
    queue: Queue, published: int, was: str | None = None, body: bytes | None = NEW, state: Any = None
) -> list[int]:
    values = [[published], [was or seen(OLD)], [body], [state], "new"]
    found: list[int] = queue.value("SELECT messages.reencrypt(%s, %s, %s::bytea[], %s::jsonb[], %s)", values)
    return found


def test_it_replaces_the_bytes_and_the_key_name_and_keeps_all_else(queue: Queue) -> None:
    published = encrypted(queue, key="k", priority=2)
    before = queue.message(published)

    assert reencrypt(queue, published) == [published]

    assert queue.message(published) == before._replace(body=NEW, headers={"a": 1, MARK: "new"})


def test_a_checkpoint_is_replaced_with_it_or_alone(queue: Queue) -> None:
    queue.policy(max_attempts=3)
    published = encrypted(queue)
    queue.settle("retry", queue.claim(), ["e"], [None], [Jsonb(STATE)])
    text = queue.value("SELECT state::text FROM messages.message")

    fresh = {"data": "bmV3", MARK: "new"}
    assert reencrypt(queue, published, seen(OLD, text), None, Jsonb(fresh)) == [published]

    after = queue.message(published)
    assert (after.body, after.state, after.headers) == (OLD, fresh, {"a": 1, MARK: "old"})


def test_reencrypt_a_running_message_is_left_alone(queue: Queue) -> None:
    published = encrypted(queue)
    queue.claim()

    assert reencrypt(queue, published) == []
    assert queue.message(published).body == OLD


def test_a_locked_row_is_not_waited_for(queue: Queue, database: Database) -> None:
    published = encrypted(queue)
    with database.connect().transaction() as held:
        held.connection.execute("SELECT FROM messages.message FOR UPDATE")

        assert reencrypt(queue, published) == []


def test_an_open_transaction_that_waits_for_the_end_does_not_block_it(queue: Queue, other: Queue) -> None:
    published = encrypted(queue)

    with other.conn.transaction():
        other.rows("SELECT FROM messages.wait_for(%s)", [published])
        assert reencrypt(queue, published) == [published]


def test_a_message_that_changed_in_the_meantime_is_left_alone(queue: Queue) -> None:
    published = encrypted(queue)

    assert reencrypt(queue, published, seen(b"\x93PGR other")) == []


@pytest.mark.parametrize(("was", "becomes"), [(b"plain", NEW), (OLD, b"plain")])
def test_an_envelope_is_replaced_only_by_an_envelope(queue: Queue, was: bytes, becomes: bytes) -> None:
    published = queue.publish(body=was)

    assert reencrypt(queue, published, seen(was), becomes) == []
    assert queue.message(published).body == was


def test_a_sleeper_is_notified_since_a_claim_may_have_skipped_the_locked_rows(
    queue: Queue, listen: Callable[..., Listener]
) -> None:
    published = encrypted(queue)
    queue.arm()
    listener = listen("new_message")

    reencrypt(queue, published)

    assert listener.received() == ["t"]


def test_an_invalid_name_of_a_key_is_refused(queue: Queue) -> None:
    with pytest.raises(errors.InvalidParameterValue, match='key of a reencrypt is "a b"'):
        queue.value("SELECT messages.reencrypt('{}', '{}', '{}', '{}', 'a b')")


def test_one_audit_entry_is_written_for_a_batch(queue: Queue) -> None:
    published = encrypted(queue)

    reencrypt(queue, published)

    assert queue.row("SELECT action, topic, detail ->> 'count' AS count FROM messages.audit") == ("reencrypt", "t", "1")


def test_its_cost_depends_on_the_batch(queue: Queue, db: psycopg.Connection[Any]) -> None:
    published = encrypted(queue)
    queue.publish_many(5000)
    db.execute("ANALYZE messages.message")
    values = [[published], [seen(OLD)], [NEW], [None], "new"]

    assert queue.buffers("SELECT messages.reencrypt(%s, %s, %s::bytea[], %s::jsonb[], %s)", values) < 400
