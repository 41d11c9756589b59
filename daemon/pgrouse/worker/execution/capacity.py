"""How many messages a worker can take now: what the executor has free, and what the next claim asks for."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Capacity:
    """How much a worker can take now: topics with free slots, the limit of each, and of all.

    Attributes:
        batches: the same for the topics of batch handlers, whose messages have slots of their own.
        start: how many could start at once; the others would wait in the worker. None = none would wait.
        prefetch: how many of each topic may wait in the worker. None = as many as the limit allows beyond `start`.
        per_claim: how many one claim takes at most; None = as many as the limit.
    """

    topics: list[str]
    slots: list[int | None] | None
    limit: int
    batches: Capacity | None = None
    start: int | None = field(default=None, compare=False)
    prefetch: list[int] | None = field(default=None, compare=False)
    per_claim: int | None = field(default=None, compare=False)

    @property
    def is_empty(self) -> bool:
        """Whether nothing can be taken."""
        return self.limit <= 0 or not self.topics
