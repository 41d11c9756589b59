"""messages.check_payload_size: what max_payload_bytes refuses. What is measured: test_admit_message.py."""

from __future__ import annotations

import psycopg
import pytest

from tests.sql.queue import Queue


@pytest.mark.parametrize(("size", "limit"), [(10, 10), (10, None), (None, 1)])
def test_a_payload_within_the_limit_passes(queue: Queue, size: int | None, limit: int | None) -> None:
    queue.rows("SELECT messages.check_payload_size('t', %s, %s)", [size, limit])


def test_one_byte_more_is_refused_with_both_numbers(queue: Queue) -> None:
    with pytest.raises(psycopg.Error, match="topic t has 11 bytes, max_payload_bytes is 10") as caught:
        queue.rows("SELECT messages.check_payload_size('t', 11, 10)")

    assert caught.value.sqlstate == "PGR04"
