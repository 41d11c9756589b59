"""messages.keep_key_header: the header that names the key of an encrypted message is kept, also when other headers are written."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg import errors
from psycopg.types.json import Jsonb

from tests.sql.queue import Queue

MARK = "pgrouse-encrypted-by"


@pytest.mark.parametrize(
    ("given", "former", "result"),
    [
        ({"a": 1}, {MARK: "k"}, {"a": 1, MARK: "k"}),
        ({MARK: "x"}, {MARK: "k", "b": 2}, {MARK: "k"}),
        ({"a": 1}, {"b": 2}, {"a": 1}),
        ({"a": 1}, None, {"a": 1}),
        (None, {MARK: "k"}, None),
    ],
)
def test_it_is_taken_from_the_old_headers(queue: Queue, given: Any, former: Any, result: Any) -> None:
    values = [None if each is None else Jsonb(each) for each in (given, former)]

    assert queue.value("SELECT messages.keep_key_header(%s::jsonb, %s::jsonb)", values) == result


def test_an_edit_keeps_it_and_takes_no_payload(queue: Queue) -> None:
    published = queue.publish(body=b"\x93PGR", headers={MARK: "k", "a": 1})

    assert queue.value("SELECT messages.edit(%s, NULL, '{\"b\": 2}')", [published]) == "edited"
    with pytest.raises(errors.InvalidParameterValue, match=f"message {published} is encrypted"):
        queue.value("SELECT messages.edit(%s, '1')", [published])

    assert (queue.message(published).body, queue.message(published).headers) == (b"\x93PGR", {MARK: "k", "b": 2})


def test_a_redrive_keeps_it_and_takes_no_payload(queue: Queue) -> None:
    published = queue.publish(body=b"\x93PGR", headers={MARK: "k", "a": 1})
    queue.settle("fail", queue.claim(), ["broken"])

    with pytest.raises(errors.InvalidParameterValue, match=f"message {published} is encrypted"):
        queue.rows("SELECT * FROM messages.redrive_edited(%s, '1')", [published])
    back = queue.row("SELECT * FROM messages.redrive_edited(%s, NULL, '{\"b\": 2}', p_merge => false)", [published])

    assert queue.message(back.message_id).headers == {MARK: "k", "b": 2}
