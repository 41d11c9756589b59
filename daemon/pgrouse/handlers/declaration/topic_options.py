"""The keyword arguments of `@topic`, for type checkers: the keys of a topic's table in pgrouse.toml.

The values are checked together with those of the file, when a command needs the handlers: a module that only publishes
imports nothing for that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict

from pgrouse.client.queries.schedule import ScheduleParts
from pgrouse.config.duration import AnyDuration

Keyword = Literal["inherit", "none"]
BackoffKind = Literal["none", "constant", "linear", "exponential"]


class BackoffOptions(TypedDict, total=False):
    """The parts of a backoff."""

    kind: BackoffKind
    base: AnyDuration
    step: AnyDuration
    factor: float
    cap: AnyDuration
    jitter: float | Literal["full"]
    max_total: AnyDuration


class BreakerOptions(TypedDict, total=False):
    """The parts of a breaker."""

    failure_rate: float
    min_attempts: int
    window: AnyDuration
    pause: AnyDuration
    probes: int


class ChannelOptions(TypedDict, total=False):
    """The policy of one channel."""

    concurrency: int | Keyword
    min_interval: AnyDuration


class TopicOptions(TypedDict, total=False):
    """The policy of a topic, and how its handler runs."""

    max_attempts: int | Keyword
    lock_duration: AnyDuration
    timeout: AnyDuration
    backoff: BackoffOptions | BackoffKind | Literal["inherit"]
    lock_expired_delay: AnyDuration
    strict_lock: bool | Keyword
    breaker: BreakerOptions | Keyword
    max_concurrency: int | Keyword
    dequeue_rate: float | Keyword
    burst: int | Keyword
    channel_concurrency: int | Keyword
    channel_min_interval: AnyDuration
    ordered: bool | Keyword
    publish_rate: float | Keyword
    max_depth: int | Keyword
    on_full: Literal["error", "drop"] | Keyword
    max_payload_bytes: int | Keyword
    payload_schema: Mapping[str, Any] | bool | str
    ttl: AnyDuration
    key_ttl: AnyDuration
    key_on_retry: Literal["supersede", "keep"] | Keyword
    notify: Literal["auto", "always", "off"] | Keyword
    accept_publishes: bool | Keyword
    archive_success: Literal["full", "no_payload"] | Keyword
    retention: AnyDuration
    dead_letter: bool | Keyword
    max_redrives: int | Keyword
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
