"""How many dead messages of each topic a list of their groups looks at."""

from __future__ import annotations


def bound_of_a_topic(topics: int, together: int, least: int, most: int) -> int:
    """Return how many messages to look at of each topic, so that those of all topics together stay near the bound.

    Args:
        topics: that have dead messages.
        together: of all topics.
        least: of one, however many topics there are.
        most: of one.
    """
    return min(most, max(least, together // max(1, topics)))
