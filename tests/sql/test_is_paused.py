"""is_paused: whether a pause applies at a time."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue


@pytest.mark.parametrize(
    ("paused_at", "resume_at", "holds"),
    [
        (None, None, False),
        (None, "2027-01-01T11:00Z", False),
        ("2027-01-01T09:00Z", None, True),
        ("2027-01-01T09:00Z", "2027-01-01T10:00:01Z", True),
        ("2027-01-01T09:00Z", "2027-01-01T10:00Z", False),
    ],
)
def test_a_pause_applies_from_its_beginning_to_its_end(
    queue: Queue, paused_at: str | None, resume_at: str | None, holds: bool
) -> None:
    assert queue.value(
        "SELECT messages.is_paused(%s::timestamptz, %s::timestamptz, '2027-01-01T10:00Z')", [paused_at, resume_at]
    ) is (holds)
