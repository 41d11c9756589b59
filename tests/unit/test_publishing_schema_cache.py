"""A publisher's cache of the schemas of topics.

It has one text for all topics that share it, and a limited number of topics.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pgrouse.publishing import schema_cache
from pgrouse.publishing.schema_cache import MAX_TOPICS, get, put


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    schema_cache._last.clear()
    yield
    schema_cache._last.clear()


def read(text: str = '{"type": "object"}') -> str:
    """Return a text as the database returns it: another object each time, of equal content."""
    return text.encode().decode()


def test_the_number_of_cached_topics_is_limited_and_the_newest_is_kept() -> None:
    for number in range(3 * MAX_TOPICS):
        put(f"t{number}", "d1", read())

    assert len(schema_cache._last) <= MAX_TOPICS
    assert get(f"t{3 * MAX_TOPICS - 1}").digest == "d1"
