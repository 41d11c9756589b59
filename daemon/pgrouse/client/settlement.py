"""How an attempt is settled in the database: which function is called, and with what."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from pgrouse.client.message import Message


class SettleKind(StrEnum):
    """The settle functions, by their names in SQL."""

    COMPLETE = "complete"
    RETRY = "retry"
    EXPIRE = "expire"  # messages.retry with result 'lock_expired'
    REJECT = "reject"
    FAIL = "fail"
    DEFER = "defer"
    RELEASE = "release"


@dataclass(slots=True)
class Settlement:
    """One attempt that ended and how it is to be settled. Texts are fit for PostgreSQL; JSON is text.

    Attributes:
        ran: of a message that is released: whether its handler had begun.
        progress: the last progress that the handler noted; written before it is settled.
        warnings: what there is to log of it besides its error: names of events, and why.
        ran_s: how long its handler ran, if that is known better than from outside: by the child that ran it.
        error_type: the class of the exception that ended it, if one did that is no outcome, or that its error quotes.
        is_encrypted: whether its texts may be stored and logged as they are; without a meaning where the topic is not encrypted.
    """

    message: Message
    kind: SettleKind
    output: str | None = None
    error: str | None = None
    after: timedelta | None = None
    until: datetime | None = None
    state: str | None = None
    ran: bool | None = None
    progress: str | None = None
    warnings: tuple[tuple[str, str], ...] = ()
    error_type: str | None = None
    ran_s: float | None = None
    is_encrypted: bool = False
