"""The span `send` of a publish, and the trace headers that it adds to its messages."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from opentelemetry import trace

from pgrouse.telemetry import names, propagation
from pgrouse.telemetry.instruments import instruments
from pgrouse.telemetry.names import MessagingOperation, server_attributes
from pgrouse.telemetry.trace_context import TRACEPARENT, P
from pgrouse.values import jsonb

# Longer headers get no context: they may be near the limit, and tracing must not cause a rejected message.
MAX_HEADER_CHARS = 8192


class PublishSpan:
    """A traced publish; within its block its span is the current one.

    Args:
        conn: the connection of the publish.
        topic: the topic; None = many messages of any topics.
    """

    def __init__(self, conn: object, topic: str | None) -> None:
        self._is_many, self._topics = topic is None, {topic} if topic else set()
        self._began = time.monotonic()
        self._count = 1
        self._instruments = instruments()
        self._span = self._instruments.tracer.start_span(
            f"{MessagingOperation.SEND} {topic}" if topic else MessagingOperation.SEND,
            kind=trace.SpanKind.PRODUCER,
            attributes={**self._attributes(), **server_attributes(conn)},
        )
        self._headers = propagation.headers_of(self._span)
        self._current: AbstractContextManager[trace.Span]

    def carry(self, columns: dict[str, Any]) -> dict[str, Any]:
        """Return the columns of a message with the context in its headers, unless its publisher has given one."""
        if self._is_many and len(self._topics) < 2:  # noqa: PLR2004 - more than one is all that counts
            self._topics.add(columns["topic"])
        given: str = columns.get("headers", "{}")
        if not self._headers or f'"{TRACEPARENT}"' in given or len(given) > MAX_HEADER_CHARS:
            return columns
        return columns | {"headers": _merge_headers(given, self._headers)}

    def sent(self, published: P) -> P:
        """Record the id of the message."""
        if published:
            self._span.set_attribute(names.MESSAGE_ID, str(int(published)))
        return published

    def sent_many(self, published: P) -> P:
        """Record how many messages were published."""
        self._count = int(published)
        self._span.set_attribute(names.BATCH_MESSAGE_COUNT, self._count)
        if topic := self._topic():
            self._span.update_name(f"{MessagingOperation.SEND} {topic}")
            self._span.set_attribute(names.DESTINATION_NAME, topic)
        return published

    def __enter__(self) -> PublishSpan:
        # Errors are recorded at the end, as the conventions require.
        self._current = trace.use_span(self._span, record_exception=False, set_status_on_exception=False)
        self._current.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._current.__exit__(kind, error, traceback)
        attributes = self._attributes()
        if kind is not None:
            attributes[names.ERROR_TYPE] = kind.__qualname__
            self._span.set_attribute(names.ERROR_TYPE, kind.__qualname__)
            self._span.set_status(trace.StatusCode.ERROR)
        self._span.end()
        self._instruments.operation.record(time.monotonic() - self._began, attributes)
        self._instruments.sent.add(self._count, attributes)

    def _attributes(self) -> dict[str, str]:
        about = {
            names.MESSAGING_SYSTEM: names.SYSTEM,
            names.OPERATION_NAME: MessagingOperation.SEND.value,
            names.OPERATION_TYPE: MessagingOperation.SEND.value,
        }
        topic = self._topic()
        return about if topic is None else about | {names.DESTINATION_NAME: topic}

    def _topic(self) -> str | None:
        """Return the topic of all messages, None if there are several."""
        return next(iter(self._topics)) if len(self._topics) == 1 else None


def _merge_headers(given: str, headers: dict[str, str]) -> str:
    """Put the trace headers in front of the given ones, as JSON."""
    rest = given.removeprefix("{").lstrip()
    text = (jsonb.encode(headers) or "").removesuffix("}")
    return f"{text}}}" if rest == "}" else f"{text},{rest}"
