"""messages.dst_change: when the clocks of a time zone change."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue

pytestmark = pytest.mark.every_server


@pytest.mark.parametrize(
    ("zone", "after", "until", "expected"),
    [
        ("Europe/Berlin", "2026-03-28 12:00Z", "2026-03-29 12:00Z", "2026-03-29 01:00Z"),
        ("Europe/Berlin", "2026-10-25 00:59:59.5Z", "2026-10-25 01:00Z", "2026-10-25 01:00Z"),
        ("Australia/Lord_Howe", "2026-04-04 00:00Z", "2026-04-05 00:00Z", "2026-04-04 15:00Z"),
        ("Pacific/Apia", "2011-12-30 00:00Z", "2011-12-31 00:00Z", "2011-12-30 10:00Z"),
    ],
)
def test_the_moment_is_found_to_the_second(queue: Queue, zone: str, after: str, until: str, expected: str) -> None:
    assert queue.value("SELECT messages.dst_change(%s, %s, %s) = %s", [zone, after, until, expected]) is True


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_without_a_change_it_is_null(queue: Queue, zone: str) -> None:
    found = queue.value("SELECT messages.dst_change(%s, '2026-07-01 00:00Z', '2026-07-02 00:00Z')", [zone])

    assert found is None
