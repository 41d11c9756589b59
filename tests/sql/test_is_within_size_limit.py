from __future__ import annotations

import pytest

from tests.sql.queue import Queue

VAST = "(SELECT jsonb_agg('1e131071'::jsonb) FROM generate_series(1, 300))"


@pytest.mark.parametrize(
    ("payload", "headers", "expected"),
    [
        ("'1'", "NULL", True),
        ("NULL", "'{}'", True),
        ("to_jsonb(repeat('a', 16777000))", "jsonb_build_object('a', repeat('a', 65000))", True),
        (VAST, "NULL", False),
        ("'1'", "'{\"a\": 1e131071}'", False),
    ],
)
def test_only_contents_within_the_limit_may_be_published(
    queue: Queue, payload: str, headers: str, expected: bool
) -> None:
    assert queue.value(f"SELECT messages.is_within_size_limit({payload}, {headers})") is expected
