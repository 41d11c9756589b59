"""The settings of a topic's policy as keyword arguments, for type checkers: of `@topic` and of `Client.set_policy`.

The values are checked when they are used, by `TopicPolicy`: a module that only publishes imports nothing for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from pgrouse.config.duration import AnyDuration

KeywordText = Literal["inherit", "none"]
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


class PolicyOptions(TypedDict, total=False):
    """The policy of a topic."""

    max_attempts: int | KeywordText
    lock_duration: AnyDuration
    timeout: AnyDuration
    backoff: BackoffOptions | BackoffKind | Literal["inherit"]
    lock_expired_delay: AnyDuration
    strict_lock: bool | KeywordText
    breaker: BreakerOptions | KeywordText
    max_concurrency: int | KeywordText
    worker_concurrency: int | KeywordText
    dequeue_rate: float | KeywordText
    burst: int | KeywordText
    channel_concurrency: int | KeywordText
    channel_min_interval: AnyDuration
    ordered: bool | KeywordText
    publish_rate: float | KeywordText
    max_depth: int | KeywordText
    on_full: Literal["error", "drop"] | KeywordText
    max_payload_bytes: int | KeywordText
    payload_schema: Mapping[str, Any] | bool | str
    ttl: AnyDuration
    key_ttl: AnyDuration
    key_on_retry: Literal["supersede", "keep"] | KeywordText
    notify: Literal["auto", "always", "off"] | KeywordText
    accept_publishes: bool | KeywordText
    archive_success: Literal["full", "no_payload"] | KeywordText
    retention: AnyDuration
    dead_letter: bool | KeywordText
    max_redrives: int | KeywordText
