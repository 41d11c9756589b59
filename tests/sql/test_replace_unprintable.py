"""messages.replace_unprintable: names that are older than the check of names, made valid for a live message."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue


@pytest.mark.parametrize(
    ("name", "expected"),
    [("order-4711", "order-4711"), ("\u202eevil\u200b", "?evil?"), ("a\x07b", "a?b"), ("é ü", "é ü"), (None, None)],
)
def test_an_invisible_character_becomes_a_question_mark(queue: Queue, name: str | None, expected: str | None) -> None:
    assert queue.call("replace_unprintable", name) == expected
    assert expected is None or queue.call("is_printable", expected)
