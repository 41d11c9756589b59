"""How one attempt of one message ended, as a test sees it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pydantic_core import from_json

from pgrouse.handlers.outcome import Ended, Kind


@dataclass(frozen=True, slots=True)
class Attempt:
    """How one attempt ended.

    Attributes:
        id: the message; 0 without a queue.
        topic: its topic.
        number: 1 for the first attempt.
        outcome: what the handler's end was taken for: `complete`, `retry`, `reject`, `fail` or `defer`. A `retry` becomes `failed` when no
            attempts are left.
        output: what is kept of it.
        state: the checkpoint that it leaves; None if it leaves the old one, or none.
        after: how long it wished to wait; None = as its topic says.
        error: why it is no success, as the archive has it.
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
        """Whether the work was done."""
        return self.outcome == Kind.COMPLETE


def attempt(ended: Ended) -> Attempt:
    """Return what there is to know of an attempt."""
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
