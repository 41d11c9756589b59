"""The state of topics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pgrouse.client.call import Call, binding


@dataclass(frozen=True, slots=True)
class TopicState:
    """Whether a topic is processed, and what stops it.

    Attributes:
        state: running, paused, breaker (open or probing) or unhandled.
        stopped: whether it is paused, or stopped by its breaker.
        paused: whether it is paused, by a pause of its own or of all topics.
        paused_topic: whose pause it is: its own name, a pattern, or '*'.
        resume_at: when the pause ends by itself; None: it is not paused, or until it is resumed.
        breaker: closed, open or probing; None: it has none.
        probe_at: when a breaker that is not closed lets messages run again; None: it is closed.
        handled: whether a running worker handles the topic; None for `*`.
        full: whether it holds as many messages as `max_depth` allows.
        depth: the number of its messages.
    """

    topic: str
    state: str
    stopped: bool
    paused: bool
    paused_topic: str | None
    paused_at: datetime | None
    paused_by: str | None
    paused_reason: str | None
    resume_at: datetime | None
    breaker: str | None
    breaker_changed_at: datetime | None
    probe_at: datetime | None
    breaker_reason: str | None
    handled: bool | None
    full: bool
    depth: int | None
    max_depth: int | None

    @property
    def has_own_pause(self) -> bool:
        """Whether it is paused itself, and not only by a pause of all topics."""
        return self.paused_topic == self.topic


@binding
def topic_state(topics: Sequence[str] | None = None) -> Call[list[TopicState]]:
    """Say which topics are stopped, and by what: those given, or '*' and all with a policy or a breaker."""
