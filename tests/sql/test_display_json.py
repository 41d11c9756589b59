from __future__ import annotations

import pytest

from tests.sql.queue import Queue


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("""'{"a": [1]}'""", '{"a": [1]}'),
        (
            "(SELECT jsonb_agg('1e131071'::jsonb) FROM generate_series(1, 9000))",
            '"JSON that is too large as text to be shown"',
        ),
        (
            "(SELECT jsonb_agg('1e131071'::jsonb) FROM generate_series(1, 300))",
            '"JSON that is too large as text to be shown"',
        ),
        ("NULL", None),
    ],
)
def test_json_is_shown_as_text_or_as_the_reason_why_it_is_not(queue: Queue, value: str, expected: str | None) -> None:
    assert queue.value(f"SELECT messages.display_json({value})") == expected
