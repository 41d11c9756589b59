"""The states of topics and of workflows."""

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


@dataclass(frozen=True, slots=True)
class Workflow:
    """A workflow, and what became of its messages.

    Attributes:
        id: that of its first message.
        state: running, or held: a message waits for one that did not succeed; when all have ended: failed (some are
            dead), cancelled or finished.
        topic: that of its first message of which something is kept.
        total: how many messages it has.
        live: how many of them have not ended.
        held: how many of those wait for one that did not succeed.
        dead: how many died, without those that were redriven.
        cancelled: how many were cancelled.
        created_at: when its first message was published.
        last_ended_at: when the latest of those that ended did.
        is_whole: false: it may have more messages: the latest were counted.
    """

    id: int
    state: str
    topic: str | None
    total: int
    live: int
    held: int
    dead: int
    cancelled: int
    created_at: datetime | None
    last_ended_at: datetime | None
    is_whole: bool


@binding
def topic_state(topics: Sequence[str] | None = None) -> Call[list[TopicState]]:
    """Say which topics are stopped, and by what: those given, or '*' and all with a policy or a breaker."""


@binding
def workflow_state(
    ids: Sequence[int], topics: Sequence[str] | None = None, limit: int | None = None
) -> Call[list[Workflow]]:
    """Say what became of workflows, the highest id first: of each the latest messages, of these topics."""
