from __future__ import annotations

import pytest

from tests.sql.queue import Queue

pytestmark = pytest.mark.every_server

VAST = 1073741823


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("'1'", 0),
        ("""'[1.5, "1e131071", true, null, 12345678901234567890]'""", 0),
        ("'1e131071'", 131_072),
        ("'-1e131071'", 131_073),
        ("'1e-16383'", 16_385),
        ("'0e-200'", 202),
        ("""'{"a": [{"b": [1e200]}, 1e200]}'""", 402),
        ("(SELECT jsonb_agg('1e131071'::jsonb) FROM generate_series(1, 128))", 128 * 131_072),
        ("(SELECT jsonb_agg('1e131071'::jsonb) FROM generate_series(1, 129))", VAST),
        ("to_jsonb(repeat('a', 16777000))", 0),
        ("to_jsonb(repeat('a', 16777300))", VAST),
        ("NULL", None),
    ],
)
def test_the_text_of_long_numbers_is_counted(queue: Queue, value: str, expected: int | None) -> None:
    assert queue.value(f"SELECT messages.long_number_bytes({value})") == expected


def test_compressed_numbers_count_with_their_full_text(queue: Queue) -> None:
    queue.conn.execute("CREATE TEMPORARY TABLE given AS SELECT to_jsonb(repeat('a', 20000000)) AS json")

    assert queue.value("SELECT messages.long_number_bytes(json) FROM given") == VAST
