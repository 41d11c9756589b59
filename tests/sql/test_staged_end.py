"""messages.staged_end: when a staged row expires."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sql.queue import Queue

TIMES: dict[str, Any] = {"available_at": None, "delay": None, "ttl": None, "expires_at": None}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, None),
        ({"expires_at": "2031-01-01 00:00+00"}, "2031-01-01"),
        ({"ttl": "1 day"}, "2030-01-02"),
        ({"ttl": "1 day", "delay": "1 day"}, "2030-01-03"),
        ({"ttl": "1 day", "available_at": "2029-01-01 00:00+00"}, "2030-01-02"),
        ({"ttl": "36500 days", "available_at": "8999-01-01 00:00+00"}, "9000-01-01"),
    ],
    ids=str,
)
def test_a_ttl_counts_from_when_the_row_becomes_available(
    queue: Queue, given: dict[str, str], expected: str | None
) -> None:
    end = "messages.staged_end(%(available_at)s, %(delay)s, %(ttl)s, %(expires_at)s, '2030-01-01 00:00+00')"

    found = queue.value(f"SELECT ({end} AT TIME ZONE 'UTC')::date::text", TIMES | given)

    assert found == expected
