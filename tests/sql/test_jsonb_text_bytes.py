from __future__ import annotations

import pytest

from tests.sql.queue import Queue

pytestmark = pytest.mark.every_server

VAST = 1073741823


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("""'{"a": "ä"}'""", 11),
        ("'1e131071'", 131_072),
        ("to_jsonb(repeat('a', 100000))", 100_002),
        (r"to_jsonb(repeat(E'\x01', 100000))", 600_002),
        ("(SELECT jsonb_agg('1e131071'::jsonb) FROM generate_series(1, 300))", 300 * 131_074),
        ("(SELECT jsonb_agg('1e131071'::jsonb) FROM generate_series(1, 9000))", VAST),
        ("NULL", None),
    ],
)
def test_it_counts_the_bytes_of_json_as_text(queue: Queue, value: str, expected: int | None) -> None:
    assert queue.value(f"SELECT messages.jsonb_text_bytes({value})") == expected


def test_compressed_json_counts_with_its_full_text(queue: Queue) -> None:
    queue.conn.execute("CREATE TEMPORARY TABLE given AS SELECT to_jsonb(repeat('a', 2000000)) AS json")

    assert queue.value("SELECT messages.jsonb_text_bytes(json) FROM given") == 2_000_002
