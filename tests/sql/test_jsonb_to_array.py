"""messages.jsonb_to_array: the array that append extends."""

from __future__ import annotations

import pytest
from psycopg.types.json import Jsonb

from tests.sql.queue import Queue


@pytest.mark.parametrize(
    ("value", "array"),
    [(1, [1]), (None, [None]), ({"a": 1}, [{"a": 1}]), ("x", ["x"]), ([], []), ([1, [2]], [1, [2]])],
)
def test_an_array_is_kept_and_anything_else_becomes_its_only_element(
    queue: Queue, value: object, array: object
) -> None:
    assert queue.call("jsonb_to_array", Jsonb(value)) == array
