"""A failed attempt, as the user's hooks get it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pgrouse.client.processing.settlement import SettleKind, Settlement

FAILURES = frozenset([SettleKind.RETRY, SettleKind.EXPIRE, SettleKind.REJECT, SettleKind.FAIL])


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt that failed: the argument of the functions of `handlers.on_failure` and `handlers.on_death`.

    Attributes:
        message_id: the message.
        topic: its topic.
        attempt: 1 for the first.
        max_attempts: how many attempts are allowed; None = no limit.
        outcome: how the attempt is settled: `retry`, `expire` (it ran longer than its timeout), `reject` or `fail`.
        is_last: whether no attempt follows, as far as the worker knows.
        error: the error as the archive keeps it; for an exception, its traceback.
        exception: the exception that the handler raised, except outcomes like `Reject`. None for handlers in child
            processes, and for encrypted topics unless crypto.error_detail = "text".
        resources: what `handlers.lifespan` yielded.
    """

    message_id: int
    topic: str
    attempt: int
    max_attempts: int | None
    outcome: str
    is_last: bool
    error: str
    exception: BaseException | None
    resources: Any


# A user's function that takes a Failure, async or not, and its name.
Hook = tuple[str, Callable[[Failure], Any]]


def to_failure(ended: Settlement, resources: Any) -> Failure:
    """Return the failure that a settlement describes."""
    message = ended.message
    limit = message.max_attempts
    is_last = ended.kind in (SettleKind.REJECT, SettleKind.FAIL) or (limit is not None and message.attempt >= limit)
    return Failure(
        message.id,
        message.topic,
        message.attempt,
        limit,
        ended.kind.value,
        is_last,
        ended.error or "",
        ended.exception,
        resources,
    )
