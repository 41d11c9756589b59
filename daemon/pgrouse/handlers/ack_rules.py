"""Acknowledgement policies.

They decide how a message ends whose handler raised an exception, or did not acknowledge it.

An outcome of the handler itself overrides every policy. That is the outcome that it returns or raises, or, if it called
one of them, its first call of `ctx.ack()`, `ctx.nack()` or `ctx.reject()`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any

from pgrouse.client.message import Message
from pgrouse.client.processing.settlement import SettleKind, Settlement
from pgrouse.config import duration
from pgrouse.errors import ConfigError, PgrouseError
from pgrouse.handlers import outcome
from pgrouse.handlers.outcome import Ack, EventWait, Outcome, Retry
from pgrouse.logging import events
from pgrouse.values.error_line import last_line

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


NOT_ACKNOWLEDGED = 'the handler ended without ctx.ack(), ctx.nack() or ctx.reject(), and its ack_policy is "manual"'


class AckPolicy(StrEnum):
    """The policies, by their names in the configuration."""

    ACK = "ack"  # success, even if the handler raises
    ACK_FIRST = "ack_first"  # success before the handler runs: at most once
    REJECT_ON_ERROR = "reject_on_error"  # an exception rejects
    NACK_ON_ERROR = "nack_on_error"  # an exception is retried while attempts are left
    MANUAL = "manual"  # a message that the handler does not acknowledge is rejected


# For the path of every message: on Python 3.11, looking up a member by its class takes as long as a call.
COMPLETE = SettleKind.COMPLETE
MANUAL = AckPolicy.MANUAL


@dataclass(frozen=True)
class AckRules:
    """How the attempts of one topic end.

    Attributes:
        strategy: asked for the time of the next attempt when the handler does not give one; None = the topic's backoff
            decides.
    """

    policy: AckPolicy = AckPolicy.NACK_ON_ERROR
    strategy: RetryStrategy | None = None

    def to_settlement(self, message: Message, returned: object, action: Outcome | None = None) -> Settlement:
        """Decide how an attempt ends.

        Args:
            message: the message.
            returned: what the handler returned or raised.
            action: its earlier call of `ctx.ack()`, `ctx.nack()` or `ctx.reject()`.
        """
        if returned is None and action is None and self.policy is not MANUAL:
            return Settlement(message, COMPLETE)  # the fast path: most handlers return this
        returned = outcome.check_returned(returned)
        if isinstance(returned, EventWait):
            return outcome.to_settlement(message, returned)
        if action is not None:
            return self._by_action(message, returned, action)
        if isinstance(returned, BaseException):
            return self._raised(message, returned)
        if self.policy is MANUAL:
            return Settlement(message, SettleKind.REJECT, error=NOT_ACKNOWLEDGED)
        return outcome.to_settlement(message, returned)

    def _by_action(self, message: Message, returned: object, action: Outcome) -> Settlement:
        if isinstance(returned, BaseException):
            return _with_warning(
                self._raised(message, action), events.ATTEMPT_ERROR_IGNORED, last_line(outcome.describe(returned))
            )
        if isinstance(action, Ack) and action.output is None:
            return outcome.to_settlement(message, returned)
        return self._raised(message, action)

    def _raised(self, message: Message, error: BaseException) -> Settlement:
        ended = outcome.to_settlement(message, error)
        if isinstance(error, Outcome):
            wish_is_open = isinstance(error, Retry) and error.after is None
            return self._with_retry_time(ended, error) if wish_is_open else ended
        match self.policy:
            case AckPolicy.ACK:
                done = Settlement(message, SettleKind.COMPLETE)
                return _with_warning(done, events.ATTEMPT_ERROR_IGNORED, last_line(ended.error or ""))
            case AckPolicy.REJECT_ON_ERROR | AckPolicy.MANUAL:
                return replace(ended, kind=SettleKind.REJECT)
            case _:
                return self._with_retry_time(ended, error)

    def to_failure(self, message: Message, error: BaseException, reason: str) -> Settlement:
        """Return how to settle an attempt whose process died."""
        return self._with_retry_time(
            Settlement(message, SettleKind.RETRY, error=reason, error_type=type(error).__qualname__), error
        )

    def _with_retry_time(self, ended: Settlement, error: BaseException) -> Settlement:
        """Ask the strategy when to try again, if there is one and attempts are left."""
        limit = ended.message.max_attempts
        if self.strategy is None or ended.kind is not SettleKind.RETRY or (limit and ended.message.attempt >= limit):
            return ended
        try:
            after = self.strategy.next_delay(ended.message, error)
        except RetryStrategyFailed as broken:
            return _with_warning(ended, events.RETRY_STRATEGY_FAILED, str(broken))
        return replace(ended, kind=SettleKind.FAIL) if after is None else replace(ended, after=after)


DEFAULT_ACK_RULES = AckRules()


def _with_warning(ended: Settlement, event: str, why: str) -> Settlement:
    return replace(ended, warnings=(*ended.warnings, (event, why)))
