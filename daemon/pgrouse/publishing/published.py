"""The results of `publish` and `publish_many`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal, Self

PublishOutcome = Literal["inserted", "replaced", "ignored", "appended", "held", "dropped"]


class Published(int):
    """The id of the message that now holds what was published; 0 if it was dropped.

    Attributes:
        outcome: `inserted`; by on_conflict: `replaced`, `ignored` or `appended`, with the id of the waiting message;
            `held`: the topic has a key_ttl, and this message still holds the key; `dropped`: the topic is full and its
            policy is to drop.
    """

    outcome: PublishOutcome

    def __new__(cls, message_id: int | None, outcome: PublishOutcome = "inserted") -> Self:
        """Create the result. Without an id the message was dropped."""
        published = super().__new__(cls, message_id or 0)
        published.outcome = outcome
        return published


class PublishedMany(int):
    """How many messages were published.

    Attributes:
        dropped: how many were not, because their topics are full, and their policy is to drop.
        ignored: how many were not, because another message stands for them: their outcome is `ignored` or `held`.
    """

    dropped: int
    ignored: int

    def __new__(cls, published: int, dropped: int, ignored: int = 0) -> PublishedMany:
        """Make one."""
        many = super().__new__(cls, published)
        many.dropped, many.ignored = dropped, ignored
        return many

    @classmethod
    def of(cls, published: Iterable[Published]) -> PublishedMany:
        """Count the results of single messages."""
        outcomes = Counter(each.outcome for each in published)
        dropped, ignored = outcomes["dropped"], outcomes["ignored"] + outcomes["held"]
        return cls(outcomes.total() - dropped - ignored, dropped, ignored)
