"""messages.like_patterns: the patterns of LIKE by which topics are chosen."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue


@pytest.mark.parametrize(
    ("wanted", "topic", "found"),
    [
        ("a", "a", True),
        ("a", "ab", False),
        ("a*", "ab", True),
        ("*", "anything", True),
        ("a_", "ab", False),
        ("a_*", "a_b", True),
        ("a%", "ab", False),
        ("a%*", "a%b", True),
        ("a\\*", "a\\b", True),
        ("a\\*", "ab", False),
    ],
)
@pytest.mark.parametrize("standard", ["on", "off"])
def test_only_a_star_at_the_end_stands_for_other_characters(
    queue: Queue, wanted: str, topic: str, found: bool, standard: str
) -> None:
    queue.conn.execute(f"SET standard_conforming_strings = {standard}".encode())

    assert queue.conn.execute("SELECT %s LIKE ANY (messages.like_patterns(%s))", [topic, [wanted]]).fetchone() == (
        found,
    )
