"""The keyword arguments of `@topic`, for type checkers: the keys of a topic's table in pgrouse.toml.

Durations are checked where they are given, because type checkers see only that they are texts. The other values are
checked together with those of the file, when a command needs the handlers: a module that only publishes imports nothing
for that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Literal, TypedDict, get_args, get_type_hints

from pgrouse.client.queries.schedule import ScheduleParts
from pgrouse.config import duration
from pgrouse.config.duration import AnyDuration
from pgrouse.config.policy.policy_options import BackoffOptions, BreakerOptions, KeywordText, PolicyOptions


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
    log_bytes: int
    channels: Mapping[str, ChannelOptions]
    subscriptions: Sequence[str]


class ScheduleOptions(ScheduleParts, total=False):
    """The keyword arguments of `Topic.every` except the times and the payload: the keys of a schedule's table."""

    name: str


# The options that are tables, and the types of what they contain; those of channels by the names of channels.
TABLES: dict[str, type] = {"backoff": BackoffOptions, "breaker": BreakerOptions}


def check_durations(what: str, options: Mapping[str, Any], kind: type | None = None) -> None:
    """Check the durations among options.

    Args:
        what: names them in the error.
        options: those of a topic or of a schedule, or of a table in them.
        kind: the type of the options; by default that of both.

    Raises:
        ValueError: one is not a duration.
    """
    for name, value in options.items():
        if isinstance(value, Mapping) and name in TABLES:
            check_durations(f"{name} of {what}", value, TABLES[name])
        elif isinstance(value, Mapping) and name == "channels":
            for channel, policy in value.items():
                check_durations(f"channel {channel} of {what}", policy, ChannelOptions)
        elif name in _durations_of(kind) and value not in get_args(KeywordText):
            _check_duration(f"{name} of {what}", value)


def _check_duration(what: str, value: Any) -> None:
    try:
        duration.parse(value)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None


@cache
def _durations_of(kind: type | None) -> frozenset[str]:
    hints = get_type_hints(kind) if kind else {**get_type_hints(TopicOptions), **get_type_hints(ScheduleOptions)}
    return frozenset(name for name, hint in hints.items() if set(get_args(AnyDuration)) <= {*get_args(hint), hint})
