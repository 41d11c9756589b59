"""Channels: their limits and pauses, and which are in use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pgrouse.client.call import Call, query_call, select_call, values
from pgrouse.config.policy.policy_settings import ChannelPolicy

IN_USE = """
  WITH running AS (
    SELECT m.channel, count(*) AS running FROM messages.message AS m
    WHERE m.topic = %(topic)s AND m.claim_id IS NOT NULL AND m.channel IS NOT NULL
    GROUP BY m.channel ORDER BY count(*) DESC LIMIT %(most)s
  ), own AS (
    SELECT c.* FROM messages.channel_state AS c WHERE c.topic = %(topic)s ORDER BY c.channel LIMIT %(most)s
  )
  SELECT coalesce(o.channel, r.channel) AS channel, coalesce(r.running, 0) AS running, o.concurrency, o.min_interval,
         coalesce(o.paused, false) AS paused, o.paused_at, o.paused_by, o.paused_reason, o.resume_at
  FROM own AS o FULL JOIN running AS r ON r.channel = o.channel"""
FIRST_WAITING = b"""
  SELECT m.id FROM messages.message AS m
  WHERE m.topic = %(topic)s AND m.channel = %(channel)s AND m.claim_id IS NULL
  ORDER BY m.id LIMIT 1"""


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel with settings or a pause of its own.

    Attributes:
        concurrency: how many messages run at once at most; None = as the policy of its topic says.
        min_interval: the time between two messages at least; in JSON, in seconds; None = as the policy of its topic
            says.
        paused: whether it is paused by a pause of its own.
        paused_by: the user who paused it; None: it is not paused.
        paused_reason: why it is paused; None: it is not, or no reason was given.
        resume_at: when its pause ends by itself; None: it is not paused, or until it is resumed.
    """

    channel: str
    concurrency: int | None
    min_interval: timedelta | None
    paused: bool
    paused_at: datetime | None
    paused_by: str | None
    paused_reason: str | None
    resume_at: datetime | None


@dataclass(frozen=True, slots=True)
class ChannelInUse(Channel):
    """A channel, and how many of its messages are running."""

    running: int


def find_channels(topic: str, *, channel: str | None = None, after: str = "", most: int = 1000) -> Call[list[Channel]]:
    """Read the channels of a topic that have a row, by name.

    Args:
        topic: which topic.
        channel: only this one.
        after: only those with a name after this one.
        most: how many.
    """
    clauses = (
        "WHERE f.topic = %(topic)s AND f.channel > %(after)s AND (%(channel)s::text IS NULL OR f.channel = %(channel)s)"
        " ORDER BY f.channel LIMIT %(most)s"
    )
    return select_call("channel_state", Channel, clauses, topic=topic, channel=channel, after=after, most=most)


def find_channel_policies(topics: Sequence[str]) -> Call[dict[tuple[str, str], dict[str, Any]]]:
    """Read what the channels of some topics set themselves, by topic and channel."""
    names = ("topic", "channel", *ChannelPolicy.names())
    statement = f"SELECT {', '.join(names)} FROM messages.channel WHERE topic = ANY (%s)"  # noqa: S608 - constants only
    return Call(
        statement.encode(), [list(topics)], lambda rows: {row[:2]: dict(zip(names, row, strict=True)) for row in rows}
    )


def channels_in_use(topic: str, most: int) -> Call[list[ChannelInUse]]:
    """Read the channels of a topic that have a row or running messages, those with the most running messages first."""
    return query_call(IN_USE, ChannelInUse, "ORDER BY f.running DESC, f.channel LIMIT %(most)s", topic=topic, most=most)


def first_waiting(topic: str, channel: str) -> Call[list[int]]:
    """Return the id of the oldest waiting message of a channel, in a list that is empty if none waits."""
    return Call(FIRST_WAITING, {"topic": topic, "channel": channel}, values)
