"""messages.redrive_edited: redrives a dead message with other contents."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg import errors
from psycopg.types.json import Jsonb

from tests.sql.deaths import copy_of, die
from tests.sql.queue import Queue, Row


def edited(queue: Queue, died: int, **edits: Any) -> Row:
    """Redrive it with these edits and return the new message."""
    values = {name: Jsonb(value) if name in ("payload", "headers") else value for name, value in edits.items()}
    named = "".join(f", p_{name} => %({name})s" for name in edits)
    (row,) = queue.rows(f"SELECT * FROM messages.redrive_edited(%(id)s{named})", {"id": died, **values})
    assert row.outcome == "redriven"
    return queue.message(row.message_id)


def test_payload_and_headers_are_merged_key_by_key_and_null_removes_a_key(queue: Queue) -> None:
    died = die(queue, payload={"id": 7, "to": {"city": "Bonn", "zip": 1}}, headers={"a": 1, "b": 2})

    new = edited(queue, died, payload={"to": {"zip": 53111}, "id": None}, headers={"a": None, "c": 3})

    assert (new.payload, new.headers) == ({"to": {"city": "Bonn", "zip": 53111}}, {"b": 2, "c": 3})


def test_without_merge_they_are_replaced(queue: Queue) -> None:
    died = die(queue, payload={"id": 7, "n": 1}, headers={"a": 1})

    new = edited(queue, died, payload={"id": 8}, headers={"b": 2}, merge=False)

    assert (new.payload, new.headers) == ({"id": 8}, {"b": 2})


@pytest.mark.parametrize("payload", [[1, 2], "text", 7, None])
def test_a_payload_of_any_kind_may_be_given(queue: Queue, payload: Any) -> None:
    assert edited(queue, die(queue, payload={"id": 7}), payload=payload).payload == payload


def test_a_payload_replaces_a_body(queue: Queue) -> None:
    new = edited(queue, die(queue, body=b"\x00"), payload={"id": 7})

    assert (new.payload, new.body) == ({"id": 7}, None)


def test_unedited_parts_are_kept(queue: Queue) -> None:
    died = die(queue, payload={"id": 7}, headers={"a": 1}, key="k", channel="c", priority=2)

    new = edited(queue, died, topic="other")

    assert (new.topic, new.payload, new.headers, new.key, new.channel, new.priority) == (
        "other",
        {"id": 7},
        {"a": 1},
        "k",
        "c",
        2,
    )
    assert new.redriven_from == died


def test_the_archive_row_is_not_changed(queue: Queue) -> None:
    died = die(queue, payload={"id": 7})
    before = queue.archived(died)

    edited(queue, died, payload={"id": 8}, topic="other")

    assert queue.archived(died) == before


def test_a_dead_copy_can_be_sent_back_to_a_topic_by_name_and_is_no_dead_letter_then(queue: Queue) -> None:
    queue.policy(dead_letter=True)
    copy = copy_of(queue, die(queue))
    queue.settle("fail", queue.claim("t.dlq"), ["worse"])

    new = edited(queue, copy.id, topic="t")

    assert (new.topic, new.origin_id, new.original_topic, new.dlq_moved_at) == ("t", None, None, None)


def test_the_key_policy_and_the_bound_of_the_target_topic_apply(queue: Queue) -> None:
    queue.policy("other", key_on_retry="keep")
    died = die(queue, key="k")
    queue.publish("other", key="k")

    (row,) = queue.rows("SELECT * FROM messages.redrive_edited(%s, p_topic => 'other')", [died])

    assert row.outcome == "keyless"


@pytest.mark.parametrize("topic", ["", "no name", "-a", "x" * 201, "orders.dlq"])
def test_an_invalid_target_topic_is_refused(queue: Queue, topic: str) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="topic of a redrive is ") as caught:
        edited(queue, die(queue), topic=topic)

    assert caught.value.diag.message_hint.startswith("use ")
    assert queue.ids() == []


@pytest.mark.parametrize("headers", [[1], "x", 7])
def test_headers_that_are_not_an_object_are_refused(queue: Queue, headers: Any) -> None:
    with pytest.raises(errors.InvalidParameterValue, match="headers of a redrive are a JSON "):
        edited(queue, die(queue), headers=headers)


def test_an_envelope_is_not_replaced_by_an_unencrypted_payload_even_if_no_header_names_its_key(
    queue: Queue,
) -> None:
    died = die(queue, body=b"\x93PGR\x01")

    with pytest.raises(errors.InvalidParameterValue, match=f"message {died} is encrypted"):
        edited(queue, died, payload={"id": 7})
    assert edited(queue, died, headers={"b": 2}).body == b"\x93PGR\x01"
