"""A user's retry strategy: a function that decides whether another attempt follows a failed one, and when."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pgrouse.client.message import Message
from pgrouse.config import duration
from pgrouse.errors import ConfigError, PgrouseError

EXPECTED = 'expected a timedelta, a number of seconds, a text like "5s", or None to give up'


class RetryStrategyFailed(PgrouseError):
    """The strategy raised an exception, or returned something that is not a time."""


@dataclass(frozen=True)
class RetryStrategy:
    """The function, and its name in the configuration."""

    name: str
    function: Callable[[int, timedelta, BaseException], Any]

    def next_delay(self, message: Message, error: BaseException) -> timedelta | None:
        """Return how long to wait before the next attempt; None = no further attempt.

        Raises:
            RetryStrategyFailed: it raised an exception, or returned something that is not a time.
        """
        try:
            answer = self.function(message.attempt, timedelta(seconds=message.elapsed_s), error)
        except BaseException as broken:  # sys.exit in it must not end the daemon
            raise RetryStrategyFailed(f"{self.name} raised {type(broken).__name__}: {broken}") from broken
        return None if answer is None else self._as_time(answer)

    def _as_time(self, answer: Any) -> timedelta:
        with suppress(TypeError, ValueError):
            return duration.to_timedelta(answer, self.name)
        if inspect.iscoroutine(answer):
            answer.close()
        shown = repr(answer) if isinstance(answer, int | float | str | timedelta) else f"a {type(answer).__name__}"
        raise RetryStrategyFailed(f"{self.name} returned {shown:.100}: {EXPECTED}")


def to_strategy(name: str, function: Any) -> RetryStrategy:
    """Return a function as a strategy.

    Raises:
        ConfigError: it cannot be a strategy; with the reason and the fix.
    """
    if not callable(function):
        raise ConfigError(f"{name} is not a function: its type is {type(function).__name__}")
    if inspect.iscoroutinefunction(function):
        raise ConfigError(f"{name} is a coroutine function: a retry strategy is a plain function that returns at once")
    try:
        inspect.signature(function).bind(1, timedelta(), Exception())
    except (TypeError, ValueError):
        raise ConfigError(f"{name} cannot be called with (attempt, elapsed, error): give it three parameters") from None
    return RetryStrategy(name, function)
