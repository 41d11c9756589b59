"""The telemetry of a daemon: spans, and the metrics of the conventions.

Each attempt, each claim and each settle has a span.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any

import psycopg
from opentelemetry import context, trace
from pydantic_core import from_json

from pgrouse.client.message import Message
from pgrouse.client.processing.settlement import SettleKind, Settlement
from pgrouse.telemetry import names, propagation
from pgrouse.telemetry.instruments import instruments
from pgrouse.telemetry.names import MessagingOperation, server_attributes
from pgrouse.telemetry.trace_context import TRACEPARENT, TRACESTATE
from pgrouse.values.error_line import error_line

# The default limit of the SDK for the links of a span.
MAX_LINKS = 128
# Settlements that are failures, and their error.type if there was no exception.
FAILURES = {
    SettleKind.RETRY: names.OTHER,
    SettleKind.EXPIRE: names.TIMEOUT,
    SettleKind.REJECT: names.REJECTED,
    SettleKind.FAIL: names.FAILED,
    SettleKind.RELEASE: names.CANCELLED,
}


class Telemetry:
    """The observer of a daemon that records spans and metrics.

    Args:
        worker: the daemon's name.
        shutdown: exports what is left, within the configured time; blocks.
    """

    def __init__(self, worker: str, shutdown: Callable[[], None]) -> None:
        self.worker, self.shutdown = worker, shutdown

    def attempt(self, messages: Sequence[Message], *, is_batch: bool) -> ProcessSpan:
        """Begin the span of a handler that processes these messages, all of one topic."""
        return ProcessSpan(self.worker, messages, is_batch=is_batch)

    def turn(
        self, conn: psycopg.AsyncConnection[Any], settlements: Sequence[Settlement], *, claims: bool
    ) -> ClaimAndSettleSpans:
        """Return the block of one turn of a claim loop."""
        return ClaimAndSettleSpans(self.worker, conn, [each.message for each in settlements], claims=claims)


class ClaimAndSettleSpans:
    """The spans `settle` and `receive` of one turn.

    They are of the messages that it settles, and of a claim that returned messages or failed.

    Args:
        settled: the messages that the turn settles.
        claims: whether it claims.
    """

    def __init__(
        self, worker: str, conn: psycopg.AsyncConnection[Any], settled: Sequence[Message], *, claims: bool
    ) -> None:
        self._worker, self._conn, self._settled, self._claims = worker, conn, settled, claims
        self._claimed: Sequence[Message] = ()
        self._began_ns = time.time_ns()

    def record_claimed(self, messages: Sequence[Message]) -> None:
        """Record what was claimed."""
        self._claimed = messages
        for topic, count in Counter(message.topic for message in messages).items():
            instruments().consumed.add(count, _attributes(MessagingOperation.RECEIVE, [topic]))

    def __enter__(self) -> ClaimAndSettleSpans:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, asyncio.CancelledError):
            return
        error_type = None if kind is None else kind.__qualname__
        if self._settled:
            self._record(MessagingOperation.SETTLE, self._settled, error_type)
        if self._claimed or (self._claims and kind is not None):
            self._record(MessagingOperation.RECEIVE, self._claimed, error_type)

    def _record(self, operation: MessagingOperation, messages: Sequence[Message], error_type: str | None) -> None:
        ended_ns = time.time_ns()
        about = _attributes(operation, {message.topic for message in messages})
        if error_type is not None:
            about[names.ERROR_TYPE] = error_type
        instruments().operation.record((ended_ns - self._began_ns) / 1e9, about)
        span = instruments().tracer.start_span(
            _title(operation, about),
            context=trace.set_span_in_context(trace.INVALID_SPAN),
            kind=trace.SpanKind.CLIENT,
            attributes={
                **about,
                **server_attributes(self._conn),
                names.CLIENT_ID: self._worker,
                names.BATCH_MESSAGE_COUNT: len(messages),
            },
            links=_links(messages),
            start_time=self._began_ns,
        )
        if error_type is not None:
            span.set_status(trace.StatusCode.ERROR)
        span.end(ended_ns)


class ProcessSpan:
    """The span `process` of one attempt, or of a batch; the current one until it ends.

    It is linked to the spans that sent the messages, and is not their child. The conventions require this, since a
    message may be processed hours after it was sent, several times, and in a batch with others.
    """

    def __init__(self, worker: str, messages: Sequence[Message], *, is_batch: bool) -> None:
        self._attributes = _attributes(MessagingOperation.PROCESS, [messages[0].topic])
        self._began = time.monotonic()
        self._error_type: str | None = None
        which: dict[str, str | int] = {names.MESSAGE_ID: str(messages[0].id), names.ATTEMPT: messages[0].attempt}
        if is_batch:
            which = {names.BATCH_MESSAGE_COUNT: len(messages)}
        self._span = instruments().tracer.start_span(
            _title(MessagingOperation.PROCESS, self._attributes),
            context=trace.set_span_in_context(trace.INVALID_SPAN),
            kind=trace.SpanKind.CONSUMER,
            attributes={**self._attributes, names.CLIENT_ID: worker, **which},
            links=_links(messages),
        )
        self._current = trace.use_span(self._span, record_exception=False, set_status_on_exception=False)
        self._current.__enter__()

    def end(self, settlements: Sequence[Settlement], *, lost: bool) -> None:
        """Record how the attempt ended; in a batch the first failure counts."""
        self._current.__exit__(None, None, None)
        if lost:
            self._record_error(names.LOST)
        else:
            self._record_results(settlements)
        self._span.end()
        about = (
            self._attributes if self._error_type is None else self._attributes | {names.ERROR_TYPE: self._error_type}
        )
        instruments().process.record(time.monotonic() - self._began, about)

    def _record_results(self, settlements: Sequence[Settlement]) -> None:
        if kinds := {each.kind.value for each in settlements}:
            self._span.set_attribute(names.OUTCOME, kinds.pop() if len(kinds) == 1 else "mixed")
        failure = next((each for each in settlements if each.kind in FAILURES), None)
        if failure is not None:
            reason = error_line(failure.error or "")
            self._record_error(failure.error_type or FAILURES[failure.kind], reason)

    def _record_error(self, error_type: str, reason: str | None = None) -> None:
        """Record an error. reason: one line."""
        self._error_type = error_type
        self._span.set_attribute(names.ERROR_TYPE, error_type)
        self._span.set_status(trace.StatusCode.ERROR, reason)


def _attributes(operation: MessagingOperation, topics: Sequence[str] | set[str]) -> dict[str, str]:
    """Return the attributes that spans and metrics have in common.

    They name the topic only if all messages have the same.
    """
    about = {
        names.MESSAGING_SYSTEM: names.SYSTEM,
        names.OPERATION_NAME: operation.value,
        names.OPERATION_TYPE: operation.value,
    }
    return about | {names.DESTINATION_NAME: next(iter(topics))} if len(topics) == 1 else about


def _title(operation: MessagingOperation, about: dict[str, str]) -> str:
    return " ".join(filter(None, [operation.value, about.get(names.DESTINATION_NAME)]))


def _links(messages: Iterable[Message]) -> list[trace.Link]:
    """Return links to the spans that sent these messages, at most as many as a span keeps."""
    found: list[trace.Link] = []
    for message in messages:
        if len(found) == MAX_LINKS:
            break
        if (sent := _sender_context(message)) is not None:
            found.append(trace.Link(sent, {names.MESSAGE_ID: str(message.id)}))
    return found


def _sender_context(message: Message) -> trace.SpanContext | None:
    if message.headers is None or TRACEPARENT not in message.headers:
        return None
    try:
        headers = from_json(message.headers)
    except ValueError:
        return None
    # The headers come from the publisher and may hold anything.
    texts = {name: headers[name] for name in (TRACEPARENT, TRACESTATE) if isinstance(headers.get(name), str)}
    # Use an empty context: if the headers are invalid, the current span would be taken for the sender.
    found = trace.get_current_span(propagation.W3C.extract(texts, context.Context())).get_span_context()
    return found if found.is_valid else None
