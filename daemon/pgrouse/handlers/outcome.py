"""How an attempt ended: what a handler may say, and what that means for the queue.

A handler returns a value (success, kept as the output) or returns or raises `Reject`, `Retry`, `Defer` or `Fail`, or says the same by
`ctx.ack()`, `ctx.nack()`, `ctx.reject()`. What any other exception means, and silence, is for the topic's ack_policy: see there.
"""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import AsyncGenerator, Awaitable, Coroutine, Generator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from pgrouse.config import duration
from pgrouse.client.message import Message

ERROR_BYTES = 8192  # the CHECK of messages.message_archive
SAID = 2000  # characters of an exception's own message that are kept
OUTPUT_BYTES = 1024 * 1024
OURS = Path(__file__).parent
ESCAPED_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


class Unchanged:
    """The type of UNCHANGED: a state that was not given, which is not the same as None."""


UNCHANGED: Final = Unchanged()


class Outcome(Exception):
    """What a handler may return or raise to say how its attempt ended."""


class Reject(Outcome):
    """The message is invalid; no further attempt can help. It is archived as `rejected`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)


class Fail(Outcome):
    """The work failed for good. The message is archived as `failed`, whatever attempts are left."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)


class Retry(Outcome):
    """The attempt failed; try again while attempts are left.

    Args:
        after: how long to wait, a timedelta or seconds; the topic's backoff unless given.
        state: a checkpoint for the next attempt; the old one is kept unless given, None clears it.
        reason: what to keep as the error.

    Raises:
        TypeError, ValueError: after is no such time.
    """

    def __init__(
        self,
        after: timedelta | float | None = None,
        *,
        state: Any = UNCHANGED,
        reason: str = "the handler asked for a retry",
    ) -> None:
        super().__init__(reason)
        self.after = None if after is None else duration.given(after, "Retry(after=...)")
        self.state = state


class Defer(Outcome):
    """Come back later. Nothing failed: the attempt is handed back.

    Args:
        after: how long to wait from now, by the server's clock: a timedelta or seconds.
        until: or the time to wait for, with its time zone.
        state: a checkpoint for the next attempt; the old one is kept unless given, None clears it.

    Raises:
        TypeError, ValueError: after or until is no such time.
    """

    def __init__(
        self, after: timedelta | float | None = None, *, until: datetime | None = None, state: Any = UNCHANGED
    ) -> None:
        super().__init__("deferred")
        if until is not None and not isinstance(until, datetime):
            raise TypeError(f"Defer(until=...) is a {type(until).__name__}: give a datetime with its time zone")
        if until is not None and until.tzinfo is None:
            raise ValueError("Defer(until=...) needs a time zone: a naive time means another moment on another machine")
        self.after = None if after is None else duration.given(after, "Defer(after=...)")
        self.until, self.state = until, state


class Kind(StrEnum):
    """The settle functions, by their names in SQL."""

    COMPLETE = "complete"
    RETRY = "retry"
    EXPIRE = "expire"  # messages.retry with result 'lock_expired'
    REJECT = "reject"
    FAIL = "fail"
    DEFER = "defer"
    RELEASE = "release"


class Acked(Outcome):
    """What `ctx.ack()` says. Nobody raises it."""

    def __init__(self, output: Any = None) -> None:
        super().__init__("acknowledged")
        self.output = output


@dataclass(slots=True)
class Ended:
    """One attempt that ended and how it is to be settled. Texts are fit for PostgreSQL; JSON is text.

    Attributes:
        ran: of a message that is given back: whether its handler had begun.
        progress: the last progress that the handler noted; written before it is settled.
        remarks: what there is to log of it besides its error: names of events, and why.
        ran_s: how long its handler ran, if that is known better than from outside: by the child that ran it.
        error_type: the class of the exception that ended it, if one did that is no outcome, or that its error quotes.
        is_sealed: whether it may be kept and told as it is; of topics that are not encrypted it does not matter.
    """

    message: Message
    kind: Kind
    output: str | None = None
    error: str | None = None
    after: timedelta | None = None
    until: datetime | None = None
    state: str | None = None
    ran: bool | None = None
    progress: str | None = None
    remarks: tuple[tuple[str, str], ...] = ()
    error_type: str | None = None
    ran_s: float | None = None
    is_sealed: bool = False


def checked(said: object) -> object:
    """Return what a handler returned; a TypeError, as if it had raised that, where it surely means something else than a success.

    A class of an exception is no outcome. Of what would have to be awaited, or to be gone through, nothing was done.
    """
    match said:
        case None | Outcome() | str() | int() | dict() | list():
            return said
        case type() if issubclass(said, BaseException):
            return TypeError(f"the handler returned the class {said.__name__}: return an outcome, {said.__name__}(...)")
        case Awaitable():
            if isinstance(said, Coroutine):
                said.close()
            return TypeError(
                f"the handler returned a {type(said).__name__}, which nobody awaits: await it, or make the handler `async def`"
            )
        case Generator() | AsyncGenerator():
            return TypeError("the handler returned a generator, of which nothing has run: a handler has no yield")
    return said


def ended(message: Message, said: object) -> Ended:
    """Return what a handler's return value, outcome or exception means by itself; of an exception: that the attempt failed."""
    match said.output if isinstance(said, Acked) else said:
        case None:
            return Ended(message, Kind.COMPLETE)
        case Reject() as it:
            return Ended(message, Kind.REJECT, error=clean(str(it)))
        case Fail() as it:
            return Ended(message, Kind.FAIL, error=clean(str(it)))
        case Retry() | Defer() as it:
            return _later(message, it)
        case BaseException() as it:
            return Ended(message, Kind.RETRY, error=describe(it), error_type=type(it).__qualname__)
        case it:
            return _completed(message, it)


def _later(message: Message, said: Retry | Defer) -> Ended:
    try:
        state = as_state(said.state)
    except ValueError as error:
        return Ended(
            message,
            Kind.RETRY,
            error=clean(f"the handler's state is not JSON: {error}"),
            error_type=_cause(error),
        )
    if isinstance(said, Retry):
        return Ended(message, Kind.RETRY, error=clean(str(said)), after=said.after, state=state)
    return Ended(message, Kind.DEFER, after=said.after, until=said.until, state=state)


def _completed(message: Message, output: object) -> Ended:
    """The work is done; an output that cannot be kept must not make it be done again."""
    try:
        return Ended(message, Kind.COMPLETE, output=as_json(output))
    except ValueError as error:
        return Ended(message, Kind.COMPLETE, error=clean(f"the output was dropped: {error}"), error_type=_cause(error))


def _cause(error: ValueError) -> str | None:
    """Return the class of what a conversion to JSON raised, whose text may quote the value; None: the text is ours."""
    return None if error.__cause__ is None else type(error.__cause__).__qualname__


def timed_out(message: Message) -> Ended:
    """The attempt overran its run_timeout: it ends as an expired lock does."""
    return Ended(
        message,
        Kind.EXPIRE,
        error=f"lock_expired: the handler ran longer than its run_timeout of {message.run_timeout_s} s",
    )


def describe(error: BaseException) -> str:
    """Return the traceback of an error without our own frames, the end of it if it is long, fit for the archive.

    A long message is cut behind its beginning: that says what kind of error it is, and the frames must have room too.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None and Path(trace.tb_frame.f_code.co_filename).parent == OURS:
        trace = trace.tb_next
    parts = traceback.format_exception(type(error), error, trace, limit=-20)
    return clean(
        "".join(
            part if len(part) <= SAID else f"{part[:SAID]}… {len(part) - SAID:,} characters more\n" for part in parts
        )
    )


def clean(text: str) -> str:
    """Return the text without what PostgreSQL cannot store, at most ERROR_BYTES of it; of a long one the end."""
    data = text.replace("\x00", "\ufffd").encode("utf-8", "replace")
    return data[-ERROR_BYTES:].decode("utf-8", "ignore")


def as_json(value: Any) -> str | None:
    """Return the value as JSON that jsonb accepts.

    Raises:
        ValueError: it is no JSON (a type without one, NaN, a NUL or a lone surrogate in a string), or too large.
    """
    text = _jsonable(value)
    if ESCAPED_NUL.search(text):
        raise ValueError("a string has a NUL character, which jsonb cannot hold")
    if len(text.encode()) > OUTPUT_BYTES:
        raise ValueError(f"it is larger than {OUTPUT_BYTES} bytes")
    return text


def as_state(state: Any) -> str | None:
    """Return a checkpoint as JSON: None = unchanged, 'null' = cleared."""
    return None if state is UNCHANGED else as_json(state)


def _jsonable(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=_to_plain)
    except Exception as error:  # an object's own way to JSON may fail in any way
        raise ValueError(str(error)) from error


def _to_plain(value: Any) -> Any:
    """Convert what is not plain JSON: pydantic models, dataclasses, dates."""
    from pydantic_core import to_jsonable_python  # noqa: PLC0415 - only for outputs that need it

    return to_jsonable_python(value)
