"""How an attempt is settled in the database: which function is called, and with what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from operator import attrgetter
from typing import Any

from pgrouse.client.call import Call
from pgrouse.client.calls.event import wait_for_event
from pgrouse.client.calls.processing import settle
from pgrouse.client.message import Message, claim_refs


class SettleKind(StrEnum):
    """How an attempt ended, for every kind of worker: the settle functions, by their names in SQL."""

    COMPLETE = "complete"
    RETRY = "retry"
    EXPIRE = "expire"  # messages.retry with result 'lock_expired'
    REJECT = "reject"
    FAIL = "fail"
    DEFER = "defer"
    RELEASE = "release"
    WAIT = "wait_for_event"


@dataclass(slots=True)
class Settlement:
    """One attempt that ended and how it is to be settled. Texts are fit for PostgreSQL; JSON is text.

    Attributes:
        pause: of a message that is deferred: `topic` or `channel` pauses that until it comes back.
        reason: of that pause.
        ran: of a message that is released: whether its handler had begun.
        event: for which a message waits.
        event_number: how many waits for an event of this name have begun, with this one.
        progress: the last progress that the handler noted; written before it is settled.
        warnings: what there is to log of it in addition to its error: names of events, and why.
        error_type: the class of the exception that ended it, if one did that is no outcome, or that its error quotes.
        exception: that exception, until the hooks know it.
    """

    message: Message
    kind: SettleKind
    output: str | None = None
    error: str | None = None
    after: timedelta | None = None
    until: datetime | None = None
    state: str | None = None
    pause: str | None = None
    reason: str | None = None
    ran: bool | None = None
    event: str | None = None
    event_number: int | None = None
    progress: str | None = None
    warnings: tuple[tuple[str, str], ...] = ()
    error_type: str | None = None
    exception: BaseException | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class LoggedLines:
    """The log lines of one attempt that ended.

    Attributes:
        text: the last lines; fit for PostgreSQL.
        left_out: how many lines before them are left out.
    """

    message: Message
    text: str
    left_out: int


# The SQL function of each kind, and its arguments except ids and claims, each with the field of a settlement that it
# has.
SETTLE_FUNCTIONS: dict[SettleKind, tuple[Callable[..., Call[list[int]]], dict[str, str]]] = {
    SettleKind.COMPLETE: (settle.complete, {"outputs": "output"}),
    SettleKind.RETRY: (settle.retry, {"errors": "error", "delays": "after", "states": "state"}),
    SettleKind.EXPIRE: (partial(settle.retry, result="lock_expired"), {"errors": "error"}),
    SettleKind.REJECT: (settle.reject, {"errors": "error"}),
    SettleKind.FAIL: (settle.fail, {"errors": "error"}),
    SettleKind.DEFER: (
        settle.defer,
        {"delays": "after", "untils": "until", "states": "state", "pauses": "pause", "reasons": "reason"},
    ),
    SettleKind.RELEASE: (settle.release, {"ran": "ran"}),
    SettleKind.WAIT: (wait_for_event, {"names": "event", "numbers": "event_number", "timeouts": "after"}),
}


def settle_call(
    kind: SettleKind, ids: Sequence[int], claim_ids: Sequence[int], values: Callable[[str], list[Any]]
) -> Call[list[int]]:
    """Return the call that settles attempts of one kind; it returns the ids of those whose lock was lost.

    Args:
        kind: how they ended.
        ids: the messages.
        claim_ids: the claim of each.
        values: returns a field of each, as a Settlement has it, by its name.
    """
    function, arguments = SETTLE_FUNCTIONS[kind]
    given = {argument: values(field) for argument, field in arguments.items()}
    some = {argument: None if each.count(None) == len(each) else each for argument, each in given.items()}
    return function(ids, claim_ids, **some)


def settlement_call(kind: SettleKind, batch: Sequence[Settlement]) -> Call[list[int]]:
    """Return the call that settles these attempts, all of one kind."""
    refs = claim_refs([each.message for each in batch])
    return settle_call(kind, *refs, lambda field: list(map(attrgetter(field), batch)))
