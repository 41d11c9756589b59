"""messages.edit: a message that waits gets another payload."""

from __future__ import annotations

import pytest
from psycopg import errors

from tests.sql.queue import Queue


def edit(
    queue: Queue, message_id: int, payload: str | None = None, headers: str | None = None, seen: str | None = None
) -> str:
    said: str = queue.value("SELECT messages.edit(%s, %s::jsonb, %s::jsonb, %s)", [message_id, payload, headers, seen])
    return said


def test_it_has_the_new_payload_and_all_else_of_the_old(queue: Queue) -> None:
    published = queue.publish(key="k", priority=2, headers={"a": 1})
    before = queue.message(published)

    assert edit(queue, published, '{"n": 2}') == "edited"

    after = queue.message(published)
    assert after == before._replace(payload={"n": 2}, content_bytes=len('{"n": 2}{"a": 1}'))


def test_a_payload_takes_the_place_of_bytes_and_headers_alone_leave_them(queue: Queue) -> None:
    published = queue.publish(body=b"\x01")

    assert edit(queue, published, headers='{"b": 2}') == "edited"
    assert (queue.message(published).body, queue.message(published).headers) == (b"\x01", {"b": 2})
    assert edit(queue, published, "null") == "edited"
    assert (queue.message(published).body, queue.value("SELECT payload::text FROM messages.message")) == (None, "null")


def test_an_envelope_is_not_replaced_by_what_would_not_be_encrypted_even_if_no_header_names_its_key(
    queue: Queue,
) -> None:
    published = queue.publish(body=b"\x93PGR\x01")

    with pytest.raises(errors.InvalidParameterValue, match=f"message {published} is encrypted"):
        edit(queue, published, "2")
    assert edit(queue, published, headers='{"b": 2}') == "edited"


def test_what_a_handler_has_already_is_left_alone(queue: Queue) -> None:
    published = queue.publish()
    queue.claim()

    assert edit(queue, published, "2") == "running"
    assert queue.message(published).payload == 1


def test_what_has_ended_is_told_so(queue: Queue) -> None:
    assert edit(queue, 4711, "2") == "ended"


def test_two_who_edit_at_once_do_not_undo_each_others_work(queue: Queue) -> None:
    published = queue.publish()
    seen = queue.value("SELECT md5(payload::text) FROM messages.message")

    assert edit(queue, published, "2", seen=seen) == "edited"
    assert edit(queue, published, "3", seen=seen) == "changed"
    assert queue.message(published).payload == 2


def test_a_payload_larger_than_the_topic_takes_is_refused(queue: Queue) -> None:
    queue.policy(max_payload_bytes=10)
    published = queue.publish()

    with pytest.raises(errors.Error) as refused:
        edit(queue, published, '"0123456789"')
    assert refused.value.sqlstate == "PGR04"


def test_headers_that_are_no_object_are_refused(queue: Queue) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="headers of an edit are a JSON array"):
        edit(queue, queue.publish(), headers="[]")


def test_somebody_who_waits_for_the_message_with_his_transaction_open_is_not_waited_for(
    queue: Queue, other: Queue
) -> None:
    published = queue.publish()

    with other.conn.transaction():
        other.rows("SELECT FROM messages.wait_for(%s)", [published])
        queue.conn.execute("SET lock_timeout = '1s'")
        assert queue.call("edit", published, {"n": 2}) == "edited"
    queue.conn.execute("RESET lock_timeout")
