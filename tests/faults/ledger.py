"""The records of publishers and operators: what was committed, what was refused, and what got no answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg

from pgrouse.errors import PublishRejected


@dataclass
class Group:
    """Messages that are published together, all or none.

    Attributes:
        tags: the name of each message, in its payload.
        merges: whether a key may have merged it into another message: then only its id is checked.
        began: how many groups had been acknowledged when it was sent.
        acknowledged: its number among those acknowledged, -1 if it is none.
        ids: their ids, if the queue returned them.
    """

    topic: str
    tags: list[str]
    channel: str | None = None
    merges: bool = False
    began: int = 0
    acknowledged: int = -1
    ids: list[int] = field(default_factory=list)


class Ledger:
    """The records of all publishers of one run."""

    def __init__(self) -> None:
        self.committed: list[Group] = []
        self.unknown: list[Group] = []
        self.refused: list[Group] = []
        self.cancelled: list[int] = []
        self.redriven: dict[int, int] = {}

    @contextmanager
    def recorded(self, group: Group) -> Iterator[Group]:
        """Record how the block ended for this group: after an error of the connection its state is unknown."""
        group.began = len(self.committed)
        try:
            yield group
        except (PublishRejected, psycopg.IntegrityError, Refusal):
            self.refused.append(group)
        except BaseException:
            self.unknown.append(group)
            raise
        else:
            group.acknowledged = len(self.committed)
            self.committed.append(group)

    def count(self) -> int:
        """How many messages are known to be committed."""
        return sum(len(group.tags) for group in self.committed)


class Refusal(Exception):
    """The publisher rolled back, or the queue refused without an error."""
