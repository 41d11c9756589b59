"""The keyword arguments of `@topic`, for type checkers: the keys of a topic's table in pgrouse.toml.

The values are checked together with those of the file, when a command needs the handlers: a module that only publishes
imports nothing for that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict

from pgrouse.client.queries.schedule import ScheduleParts
from pgrouse.config.duration import AnyDuration
from pgrouse.config.policy_options import KeywordText, PolicyOptions


class ChannelOptions(TypedDict, total=False):
    """The policy of one channel."""

    concurrency: int | KeywordText
    min_interval: AnyDuration


class TopicOptions(PolicyOptions, total=False):
    """The policy of a topic, and how its handler runs."""

    concurrency: int
    isolation: Literal["none", "process"]
    batch_timeout: AnyDuration
    ack_policy: Literal["ack", "ack_first", "reject_on_error", "nack_on_error", "manual"]
    retry_strategy: str | Callable[..., Any]
    channels: Mapping[str, ChannelOptions]
    subscriptions: Sequence[str]


class ScheduleOptions(ScheduleParts, total=False):
    """The keyword arguments of `Topic.every` except the times and the payload: the keys of a schedule's table."""

    name: str
