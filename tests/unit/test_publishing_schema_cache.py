"""What a publisher remembers of the schemas of topics: one text for all topics that share it, and of no more topics than are bearable."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pgrouse.publishing import schema_cache as known_schema
from pgrouse.publishing.schema_cache import MOST_TOPICS, recall, remember


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    known_schema._last.clear()
    yield
    known_schema._last.clear()


def read(text: str = '{"type": "object"}') -> str:
    """Return a text as it comes from the database: another one each time, of equal content."""
    return text.encode().decode()


def test_topics_with_the_same_schema_share_its_text() -> None:
    remember("a", "d1", read())
    remember("b", "d1", read())
    remember("c", "d2", read('{"type": "string"}'))

    assert recall("a").text is recall("b").text
    assert recall("c").text == '{"type": "string"}'


def test_names_of_topics_without_end_fill_no_memory_and_the_last_is_known() -> None:
    for number in range(3 * MOST_TOPICS):
        remember(f"t{number}", "d1", read())

    assert len(known_schema._last) <= MOST_TOPICS
    assert recall(f"t{3 * MOST_TOPICS - 1}").digest == "d1"


def test_what_is_remembered_anew_makes_nobody_forgotten() -> None:
    for number in range(MOST_TOPICS):
        remember(f"t{number}", "d1", read())
    remember("t7", "d2", read("{}"))

    assert (recall("t0").digest, recall("t7").digest) == ("d1", "d2")


def test_a_topic_without_a_schema_is_forgotten() -> None:
    remember("a", "d1", read())

    assert remember("a", None, None).digest is None
    assert recall("a").digest is None
