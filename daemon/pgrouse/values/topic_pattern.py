"""Patterns of topics: `orders.*` has one level more than `orders`, `orders.**` any number of levels, at least one.

The server has the same definition, `messages.topic_matches`; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

V = TypeVar("V")

NAME = r"[A-Za-z0-9][A-Za-z0-9._:-]*"
# A name; a pattern; in NAME_OR_DEFAULTS also `*` alone, which stands for the defaults, or for every topic.
NAME_OR_PATTERN = rf"^({NAME}|({NAME}\.)?\*\*|{NAME}\.\*)$"
NAME_OR_DEFAULTS = rf"^({NAME}|({NAME}\.)?\*\*?)$"
MAX_BYTES = 200
# The names of topics of dead letters end so. No pattern matches them: its handler would get what it failed to process.
DEAD_LETTERS = ".dlq"
DEFAULTS = "*"
# How many topics a PatternDict remembers.
MAX_KNOWN = 10_000


def is_pattern(name: str) -> bool:
    """Return whether a name stands for several topics."""
    return name.endswith("*")


def patterns_of(topic: str) -> list[str]:
    """Return the patterns that match a topic, the most specific first.

    Of a pattern: itself, and those that match all of its topics.
    """
    if topic.endswith(DEAD_LETTERS) or topic == DEFAULTS:
        return []
    begin = topic[: topic.rfind(".") + 1]
    found = [f"{begin}*"] if begin and not topic.endswith("**") else []
    while begin:
        found.append(f"{begin}**")
        begin = begin[: begin.rfind(".", 0, -1) + 1]
    return [*found, "**"]


def matches(pattern: str, topic: str) -> bool:
    """Return whether a pattern matches a topic, or all topics of another pattern.

    A pattern may also be a name, `*` for every topic, or the beginning of names that ends with `*`.
    """
    if pattern == "**" or pattern.endswith((".*", ".**")):
        return pattern in patterns_of(topic)
    return topic.startswith(pattern[:-1]) if is_pattern(pattern) else topic == pattern


def find(names: Iterable[str], topic: str) -> str | None:
    """Return which of several names and patterns a topic belongs to: its own name, else the most specific pattern."""
    known = names if isinstance(names, set | frozenset | dict) else set(names)
    return next((each for each in (topic, *patterns_of(topic)) if each in known), None)


def by_topic(values: dict[str, V]) -> dict[str, V]:
    """Return values by names and patterns so that they can be looked up by topics: see PatternDict."""
    return PatternDict(values) if any(map(is_pattern, values)) else values


class PatternDict(dict[str, V], Generic[V]):
    """Values by names and patterns of topics: `each[topic]` is the value of the topic, else of its best pattern.

    Only the names and patterns are its keys. A topic that was found is remembered, so that looking it up again takes as
    long as in a dict.
    """

    def __init__(self, values: Iterable[tuple[str, V]] | dict[str, V] = ()) -> None:
        super().__init__(values)
        self._has_patterns = any(map(is_pattern, self))
        self._known: dict[str, V] = {}

    def __missing__(self, topic: str) -> V:
        """Return the value of the most specific pattern of a topic."""
        if topic in self._known:
            return self._known[topic]
        name = self.name_of(topic)
        if name is None:
            raise KeyError(topic)
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        return self._known.setdefault(topic, self[name])

    def name_of(self, topic: str) -> str | None:
        """Return the name or pattern under which a topic is here; None = it is not."""
        if topic in self:
            return topic
        return find(self, topic) if self._has_patterns else None

    def find(self, topic: str) -> V | None:
        """Return the value of a topic; None = there is none."""
        try:
            return self[topic]
        except KeyError:
            return None
