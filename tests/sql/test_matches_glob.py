"""messages.matches_glob: a pattern in which * matches any characters and nothing else has a meaning."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        (None, "a", True),
        ("*", None, True),
        ("a", None, False),
        ("a", "a", True),
        ("a", "ab", False),
        ("a*", "ab", True),
        ("*.b", "a.b", True),
        ("a*c", "abbc", True),
        ("a_c", "abc", False),
        ("a%", "abc", False),
        ("a\\*", "a\\b", True),
    ],
)
def test_it_matches_or_not(queue: Queue, pattern: str | None, text: str | None, matches: bool) -> None:
    assert queue.call("matches_glob", pattern, text) is matches
