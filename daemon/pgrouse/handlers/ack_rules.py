"""Acknowledgement policies: what becomes of a message whose handler raised an exception, or said nothing.

What a handler says itself wins over every policy: an outcome that it returns or raises, or before that the first of `ctx.ack()`,
`ctx.nack()` and `ctx.reject()` that it called.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from pgrouse import events

from pgrouse.handlers import outcome
from pgrouse.error_line import last_line
from pgrouse.client.message import Message
from pgrouse.handlers.outcome import Acked, Ended, Kind, Outcome, Retry
from pgrouse.handlers.retry_strategy import Strategy, StrategyFailed

SILENT = 'the handler ended without ctx.ack(), ctx.nack() or ctx.reject(), and its ack_policy is "manual"'


class AckPolicy(StrEnum):
    """The policies, by their names in the configuration."""

    ACK = "ack"  # success, also if the handler raises
    ACK_FIRST = "ack_first"  # success before the handler runs: at most once
    REJECT_ON_ERROR = "reject_on_error"  # an exception rejects
    NACK_ON_ERROR = "nack_on_error"  # an exception is retried while attempts are left
    MANUAL = "manual"  # whatever the handler does not acknowledge is rejected


@dataclass(frozen=True)
class Rules:
    """How the attempts of one topic end.

    Attributes:
        strategy: asked for the time of the next attempt when the handler has no wish of its own; None = the topic's backoff decides.
    """

    policy: AckPolicy = AckPolicy.NACK_ON_ERROR
    strategy: Strategy | None = None

    def ended(self, message: Message, said: object, action: Outcome | None = None) -> Ended:
        """Decide how an attempt ends.

        Args:
            message: the message.
            said: what the handler returned or raised.
            action: what it said before by `ctx.ack()`, `ctx.nack()` or `ctx.reject()`.
        """
        said = outcome.checked(said)
        if action is not None:
            return self._by_action(message, said, action)
        if isinstance(said, BaseException):
            return self._raised(message, said)
        if self.policy is AckPolicy.MANUAL:
            return Ended(message, Kind.REJECT, error=SILENT)
        return outcome.ended(message, said)

    def _by_action(self, message: Message, said: object, action: Outcome) -> Ended:
        if isinstance(said, BaseException):
            return _remark(self._raised(message, action), events.ERROR_IGNORED, last_line(outcome.describe(said)))
        if isinstance(action, Acked) and action.output is None:
            return outcome.ended(message, said)
        return self._raised(message, action)

    def _raised(self, message: Message, error: BaseException) -> Ended:
        ended = outcome.ended(message, error)
        if isinstance(error, Outcome):
            wish_is_open = isinstance(error, Retry) and error.after is None
            return self._timed(ended, error) if wish_is_open else ended
        match self.policy:
            case AckPolicy.ACK:
                done = Ended(message, Kind.COMPLETE)
                return _remark(done, events.ERROR_IGNORED, last_line(ended.error or ""))
            case AckPolicy.REJECT_ON_ERROR | AckPolicy.MANUAL:
                return replace(ended, kind=Kind.REJECT)
            case _:
                return self._timed(ended, error)

    def failed(self, message: Message, error: BaseException, reason: str) -> Ended:
        """Return the end of an attempt whose handler could say nothing: its process died."""
        return self._timed(Ended(message, Kind.RETRY, error=reason, error_type=type(error).__qualname__), error)

    def _timed(self, ended: Ended, error: BaseException) -> Ended:
        """Ask the strategy when to try again, if there is one and attempts are left."""
        limit = ended.message.max_attempts
        if self.strategy is None or ended.kind is not Kind.RETRY or (limit and ended.message.attempt >= limit):
            return ended
        try:
            after = self.strategy.ask(ended.message, error)
        except StrategyFailed as broken:
            return _remark(ended, events.RETRY_STRATEGY_FAILED, str(broken))
        return replace(ended, kind=Kind.FAIL) if after is None else replace(ended, after=after)


DEFAULT_RULES = Rules()


def _remark(ended: Ended, event: str, why: str) -> Ended:
    return replace(ended, remarks=(*ended.remarks, (event, why)))
