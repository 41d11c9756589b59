"""How an attempt ended: the outcomes of a handler, and how they are settled.

A handler returns a value (success, kept as the output) or returns or raises `Reject`, `Retry`, `Defer`, `Pause` or
`Fail`, or calls `ctx.ack()`, `ctx.nack()`, `ctx.reject()`. The topic's ack_policy decides about all other exceptions,
and about silence: see there.
"""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import AsyncGenerator, Awaitable, Coroutine, Generator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from pydantic_core import to_jsonable_python

from pgrouse.client.message import Message
from pgrouse.client.processing.settlement import SettleKind, Settlement
from pgrouse.config import duration
from pgrouse.config.duration import AnyDuration
from pgrouse.values import jsonb
from pgrouse.values.error_line import to_storable_text

MESSAGE_CHARS = 2000  # how many characters of an exception's message are kept
OUTPUT_BYTES = 1024 * 1024
OUR_CODE = Path(__file__).parents[1]
ESCAPED_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


class Unchanged:
    """The type of UNCHANGED: a state that was not given, which is not the same as None."""


UNCHANGED: Final = Unchanged()


class Outcome(Exception):
    """A result that a handler returns or raises to tell how its attempt ended."""


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
        after: how long to wait, as a timedelta, seconds, or "5s"; the topic's backoff unless given.
        state: a checkpoint for the next attempt; the old one is kept unless given, None clears it.
        reason: what to keep as the error.

    Raises:
        TypeError, ValueError: after is not a valid time.
    """

    def __init__(
        self,
        after: AnyDuration | None = None,
        *,
        state: Any = UNCHANGED,
        reason: str = "the handler asked for a retry",
    ) -> None:
        super().__init__(reason)
        self.after = None if after is None else duration.to_timedelta(after, "Retry(after=...)")
        self.state = state


class Defer(Outcome):
    """Come back later. Nothing failed: the attempt is not counted.

    Args:
        after: how long to wait from now, by the server's clock: a timedelta, seconds, or "5s".
        until: alternatively, the time to wait for, with its time zone.
        state: a checkpoint for the next attempt; the old one is kept unless given, None clears it.

    Raises:
        TypeError, ValueError: after or until is not a valid time.
    """

    def __init__(
        self, after: AnyDuration | None = None, *, until: datetime | None = None, state: Any = UNCHANGED
    ) -> None:
        super().__init__("deferred")
        name = type(self).__name__
        if until is not None and not isinstance(until, datetime):
            raise TypeError(
                f"{name}(until=...) has the type {type(until).__name__}: give a datetime with its time zone"
            )
        if until is not None and until.tzinfo is None:
            raise ValueError(
                f"{name}(until=...) needs a time zone: a naive time means another moment on another machine"
            )
        self.after = None if after is None else duration.to_timedelta(after, f"{name}(after=...)")
        self.until, self.state = until, state


class Pause(Defer):
    """Nothing of this topic can be processed before a time: pause the topic until then, and come back.

    An example is an API that has had enough requests (429). Nothing failed: the attempt is not counted. Messages that
    other workers run or hold already go on; nothing else of the topic is claimed. A pause that lasts longer stays.

    Args:
        after: how long to wait from now, by the server's clock: a timedelta, seconds, or "5s".
        until: alternatively, the time to wait for, with its time zone.
        channel: pause only the message's channel; one without a channel pauses nothing, and comes back later.
        state: a checkpoint for the next attempt; the old one is kept unless given, None clears it.
        reason: what operators read beside the pause.

    Raises:
        TypeError, ValueError: neither after nor until is given, or it is not a valid time.
    """

    def __init__(
        self,
        after: AnyDuration | None = None,
        *,
        until: datetime | None = None,
        channel: bool = False,
        state: Any = UNCHANGED,
        reason: str = "the handler asked for a pause",
    ) -> None:
        super().__init__(after, until=until, state=state)
        if after is None and until is None:
            raise ValueError("Pause needs after=... or until=...: only operators pause without an end")
        self.channel, self.reason = channel, reason


class EventWait(BaseException):
    """The attempt ends, and the message waits for an event. `ctx.wait_for_event` raises it; no handler does.

    It is no Exception, so that an `except Exception` of the handler does not stop it.

    Args:
        name: the event.
        number: how many waits for an event of this name the handler has begun, with this one.
        timeout: how long the message waits at most; None = without a limit.
    """

    def __init__(self, name: str, number: int, timeout: timedelta | None) -> None:
        super().__init__(f"the message waits for the event {name!r}")
        self.name, self.number, self.timeout = name, number, timeout


class Ack(Outcome):
    """The outcome of `ctx.ack()`. It is never raised."""

    def __init__(self, output: Any = None) -> None:
        super().__init__("acknowledged")
        self.output = output


def check_returned(returned: object) -> object:
    """Return what a handler returned, or a TypeError for values that surely do not mean success.

    The error is as if the handler had raised it.

    An exception class is not an outcome. A coroutine or a generator that a handler returned has not run.
    """
    match returned:
        case None | Outcome() | str() | int() | dict() | list():
            return returned
        case type() if issubclass(returned, BaseException):
            return TypeError(
                f"the handler returned the class {returned.__name__}: return an outcome, {returned.__name__}(...)"
            )
        case Awaitable():
            if isinstance(returned, Coroutine):
                returned.close()
            return TypeError(
                f"the handler returned a {type(returned).__name__}, which is never awaited: "
                "await it, or make the handler `async def`"
            )
        case Generator() | AsyncGenerator():
            return TypeError("the handler returned a generator, which has not run: a handler has no yield")
    return returned


def to_settlement(message: Message, returned: object) -> Settlement:
    """Return how a handler's return value, outcome or exception ends an attempt without a policy.

    An exception is a failed attempt.
    """
    match returned.output if isinstance(returned, Ack) else returned:
        case None:
            return Settlement(message, SettleKind.COMPLETE)
        case Reject() | Fail() as it:
            kind = SettleKind.REJECT if isinstance(it, Reject) else SettleKind.FAIL
            return Settlement(message, kind, error=to_storable_text(str(it)))
        case Retry() | Defer() as it:
            return _retry_or_defer(message, it)
        case EventWait() as it:
            return Settlement(message, SettleKind.WAIT, event=it.name, event_number=it.number, after=it.timeout)
        case BaseException() as it:
            return Settlement(
                message, SettleKind.RETRY, error=describe(it), error_type=type(it).__qualname__, exception=it
            )
        case it:
            return _completed(message, it)


def _retry_or_defer(message: Message, returned: Retry | Defer) -> Settlement:
    try:
        state = encode_state(returned.state)
    except ValueError as error:
        return Settlement(
            message,
            SettleKind.RETRY,
            error=to_storable_text(f"the handler's state is not JSON: {error}"),
            error_type=_cause(error),
        )
    if isinstance(returned, Retry):
        reason = f"{returned}{_no_attempt_left(message)}"
        return Settlement(message, SettleKind.RETRY, error=to_storable_text(reason), after=returned.after, state=state)
    settlement = Settlement(message, SettleKind.DEFER, after=returned.after, until=returned.until, state=state)
    if isinstance(returned, Pause):
        settlement.pause = "channel" if returned.channel else "topic"
        settlement.reason = to_storable_text(returned.reason)
    return settlement


def _no_attempt_left(message: Message) -> str:
    """Return why no attempt follows, if none does."""
    limit = message.max_attempts
    return f"; no attempt follows: max_attempts is {limit}" if limit and message.attempt >= limit else ""


def _completed(message: Message, output: object) -> Settlement:
    """Complete the message. If the output cannot be kept, drop it: the work must not be done again."""
    try:
        return Settlement(message, SettleKind.COMPLETE, output=encode_output(output))
    except ValueError as error:
        return Settlement(
            message,
            SettleKind.COMPLETE,
            error=to_storable_text(f"the output was dropped: {error}"),
            error_type=_cause(error),
        )


def _cause(error: ValueError) -> str | None:
    """Return the class of the error that a conversion to JSON raised; None: the text is pgrouse's.

    The error's own text may quote the value.
    """
    return None if error.__cause__ is None else type(error.__cause__).__qualname__


def timed_out(message: Message) -> Settlement:
    """The attempt ran longer than its timeout: it ends as with an expired lock."""
    return Settlement(
        message,
        SettleKind.EXPIRE,
        error=f"lock_expired: the handler ran longer than its timeout of {message.timeout_s} s",
    )


def describe(error: BaseException) -> str:
    """Return the traceback of an error for the archive: without pgrouse's frames, and only its end if it is long.

    A long message is cut after its beginning, which names the kind of error, because the frames need space too.
    """
    trace = error.__traceback__
    while (
        trace is not None and trace.tb_next is not None and OUR_CODE in Path(trace.tb_frame.f_code.co_filename).parents
    ):
        trace = trace.tb_next
    parts = traceback.format_exception(type(error), error, trace, limit=-20)
    return to_storable_text(
        "".join(
            part
            if len(part) <= MESSAGE_CHARS
            else f"{part[:MESSAGE_CHARS]}... {len(part) - MESSAGE_CHARS:,} characters more\n"
            for part in parts
        )
    )


def encode_output(value: Any) -> str | None:
    """Return the value as JSON that jsonb accepts.

    Raises:
        ValueError: it is not JSON (a type without one, NaN, a NUL or a lone surrogate in a string), or too large.
    """
    text = _to_json(value)
    if ESCAPED_NUL.search(text):
        raise ValueError("a string has a NUL character, which jsonb cannot hold")
    if len(text.encode()) > OUTPUT_BYTES:
        raise ValueError(f"it is larger than {OUTPUT_BYTES} bytes")
    return text


def encode_state(state: Any) -> str | None:
    """Return a checkpoint as JSON: None = unchanged, 'null' = cleared."""
    return None if state is UNCHANGED else encode_output(state)


def _to_json(value: Any) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=to_jsonable_python)
        jsonb.refuse_equal_keys(value, text, "it")
    except Exception as error:  # a user's conversion to JSON may raise anything
        raise ValueError(str(error)) from error
    return text
