"""The result of one attempt, for tests."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from pgrouse.client.processing.settlement import SettleKind, Settlement

if TYPE_CHECKING:
    from collections.abc import Generator


@dataclass(frozen=True, slots=True)
class Attempt:
    """How one attempt ended.

    Attributes:
        id: the message; 0 without a queue.
        topic: its topic.
        number: 1 for the first attempt.
        outcome: how the attempt was settled: `complete`, `retry`, `reject`, `fail`, `defer` or
            `wait_for_event`. A `retry` becomes `failed` when no attempts are left.
        output: its stored output.
        state: the checkpoint that it stored; None if it stored none.
        after: the requested delay; None = the delay of the topic's policy.
        error: the error as the archive stores it; None for a success.
    """

    id: int
    topic: str
    number: int
    outcome: str
    output: Any = None
    state: Any = None
    after: timedelta | None = None
    error: str | None = None

    @property
    def succeeded(self) -> bool:
        """Whether it was completed."""
        return self.outcome == SettleKind.COMPLETE


if TYPE_CHECKING:
    # Whether a loop runs is no part of a type: both uses are right for a type checker, and neither gives Any.

    class AttemptHere(Attempt):
        """An `Attempt`; where an event loop runs, a coroutine that returns it."""

        def __await__(self) -> Generator[None, None, Attempt]: ...

    class AttemptsHere(list[Attempt]):
        """A list of attempts; where an event loop runs, a coroutine that returns it."""

        def __await__(self) -> Generator[None, None, list[Attempt]]: ...


def attempt(ended: Settlement) -> Attempt:
    """Return a settlement as an Attempt."""
    message = ended.message
    return Attempt(
        message.id,
        message.topic,
        message.attempt,
        ended.kind.value,
        _value(ended.output),
        _value(ended.state),
        ended.after,
        ended.error,
    )


def _value(text: str | None) -> Any:
    return None if text is None else from_json(text)
