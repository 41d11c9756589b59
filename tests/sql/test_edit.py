"""messages.edit: a waiting message gets another payload."""

from __future__ import annotations

import pytest
from psycopg import errors

from tests.sql.queue import Queue


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


def test_an_envelope_is_not_replaced_by_an_unencrypted_payload_even_if_no_header_names_its_key(
    queue: Queue,
) -> None:
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
