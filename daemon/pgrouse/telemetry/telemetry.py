"""The telemetry of a daemon: a span for each attempt, each claim and each settle, and the metrics of the conventions."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

import psycopg
from opentelemetry import trace

from pgrouse.client.message import Message
from pgrouse.client.settlement import SettleKind, Settlement
from pgrouse.telemetry import names, propagation
from pgrouse.telemetry.instruments import instruments
from pgrouse.telemetry.names import Operation
from pgrouse.telemetry.server import server_attributes

# Settlements that are failures, and their error.type if there was no exception.
FAILURES = {
    SettleKind.RETRY: names.OTHER,
    SettleKind.EXPIRE: names.TIMEOUT,
    SettleKind.REJECT: names.REJECTED,
    SettleKind.FAIL: names.FAILED,
}


class Telemetry:
    """The spans and metrics of one daemon.

    Args:
        worker: its name.
    """

    def __init__(self, worker: str) -> None:
        self.worker = worker

    def process(self, messages: Sequence[Message], *, is_batch: bool = False) -> ProcessSpan:
        """Return the block in which a handler works these messages, all of one topic."""
        return ProcessSpan(self.worker, messages, is_batch=is_batch)

    def record_claim(self, conn: psycopg.AsyncConnection[Any], began_ns: int, messages: Sequence[Message]) -> None:
        """Record a claim that returned messages. began_ns: when it was sent, by time.time_ns."""
        by_topic = Counter(message.topic for message in messages)
        for topic, count in by_topic.items():
            instruments().consumed.add(count, _attributes(Operation.RECEIVE, [topic]))
        self._record(Operation.RECEIVE, conn, began_ns, messages)

    def record_settle(self, conn: psycopg.AsyncConnection[Any], began_ns: int, ended: Sequence[Settlement]) -> None:
        """Record a settle."""
        self._record(Operation.SETTLE, conn, began_ns, [each.message for each in ended])

    def record_failure(
        self,
        operation: Operation,
        conn: psycopg.AsyncConnection[Any],
        began_ns: int,
        messages: Sequence[Message],
        error: BaseException,
    ) -> None:
        """Record a claim or a settle that failed, or whose result is not known."""
        self._record(operation, conn, began_ns, messages, type(error).__qualname__)

    def _record(
        self,
        operation: Operation,
        conn: psycopg.AsyncConnection[Any],
        began_ns: int,
        messages: Sequence[Message],
        error_type: str | None = None,
    ) -> None:
        ended_ns = time.time_ns()
        about = _attributes(operation, {message.topic for message in messages})
        if error_type is not None:
            about[names.ERROR_TYPE] = error_type
        instruments().operation.record((ended_ns - began_ns) / 1e9, about)
        span = instruments().tracer.start_span(
            _title(operation, about),
            context=trace.set_span_in_context(trace.INVALID_SPAN),
            kind=trace.SpanKind.CLIENT,
            attributes={
                **about,
                **server_attributes(conn),
                names.CLIENT_ID: self.worker,
                names.BATCH_MESSAGE_COUNT: len(messages),
            },
            links=propagation.links(messages),
            start_time=began_ns,
        )
        if error_type is not None:
            span.set_status(trace.StatusCode.ERROR)
        span.end(ended_ns)


class ProcessSpan:
    """The span `process` of one attempt, or of a batch; the current one within its block.

    It is linked to the spans that sent the messages, not their child. So say the conventions, since a message may be processed hours after
    it was sent, several times, and in a batch with others.
    """

    def __init__(self, worker: str, messages: Sequence[Message], *, is_batch: bool) -> None:
        self._attributes = _attributes(Operation.PROCESS, [messages[0].topic])
        self._began = time.monotonic()
        self._error_type: str | None = None
        which: dict[str, str | int] = {names.MESSAGE_ID: str(messages[0].id), names.ATTEMPT: messages[0].attempt}
        if is_batch:
            which = {names.BATCH_MESSAGE_COUNT: len(messages)}
        self._span = instruments().tracer.start_span(
            _title(Operation.PROCESS, self._attributes),
            context=trace.set_span_in_context(trace.INVALID_SPAN),
            kind=trace.SpanKind.CONSUMER,
            attributes={**self._attributes, names.CLIENT_ID: worker, **which},
            links=propagation.links(messages),
        )
        self._current: AbstractContextManager[trace.Span]

    def record_results(self, *ends: Settlement) -> None:
        """Record the results; in a batch the first failure counts."""
        if kinds := {each.kind.value for each in ends}:
            self._span.set_attribute(names.OUTCOME, kinds.pop() if len(kinds) == 1 else "mixed")
        failure = next((each for each in ends if each.kind in FAILURES), None)
        if failure is not None:
            reason = (failure.error or "").rstrip().rpartition("\n")[2]
            self.record_error(failure.error_type or FAILURES[failure.kind], reason)

    def record_error(self, error_type: str, reason: str | None = None) -> None:
        """Record an error. reason: one line."""
        self._error_type = error_type
        self._span.set_attribute(names.ERROR_TYPE, error_type)
        self._span.set_status(trace.StatusCode.ERROR, reason)

    def __enter__(self) -> ProcessSpan:
        self._current = trace.use_span(self._span, record_exception=False, set_status_on_exception=False)
        self._current.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._current.__exit__(kind, error, traceback)
        if kind is not None and self._error_type is None:
            self.record_error(names.CANCELLED)
        self._span.end()
        about = (
            self._attributes if self._error_type is None else self._attributes | {names.ERROR_TYPE: self._error_type}
        )
        instruments().process.record(time.monotonic() - self._began, about)


def _attributes(operation: Operation, topics: Sequence[str] | set[str]) -> dict[str, str]:
    """Return the attributes that spans and metrics have in common. The topic only if all messages are of one."""
    about = {
        names.MESSAGING_SYSTEM: names.SYSTEM,
        names.OPERATION_NAME: operation.value,
        names.OPERATION_TYPE: operation.value,
    }
    return about | {names.DESTINATION_NAME: next(iter(topics))} if len(topics) == 1 else about


def _title(operation: Operation, about: dict[str, str]) -> str:
    return " ".join(filter(None, [operation.value, about.get(names.DESTINATION_NAME)]))
