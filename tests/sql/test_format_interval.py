"""format_interval: spans of time for people."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue


@pytest.mark.parametrize(
    ("span", "words"),
    [
        ("-5 s", "0 ms"),
        ("40 ms", "40 ms"),
        ("4.23 s", "4.2 s"),
        ("119 s", "119 s"),
        ("17 min", "17 min"),
        ("3 h", "3 h"),
        ("12 days", "12 d"),
    ],
)
def test_one_unit_is_enough(queue: Queue, span: str, words: str) -> None:
    assert queue.value("SELECT messages.format_interval(%s::interval)", [span]) == words
