"""format_interval: durations as text for people."""

from __future__ import annotations

import pytest

from tests.durations import DURATIONS
from tests.sql.queue import Queue


@pytest.mark.parametrize(("seconds", "shown"), DURATIONS)
def test_one_unit_is_enough(queue: Queue, seconds: float, shown: str) -> None:
    assert queue.value("SELECT messages.format_interval(make_interval(secs => %s))", [seconds]) == shown
