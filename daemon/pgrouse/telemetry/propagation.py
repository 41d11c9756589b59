"""Trace contexts as headers, by OpenTelemetry's own W3C propagator. Baggage is not passed on: it may hold data that must not be stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import context, trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from pydantic_core import from_json

from pgrouse.client.message import Message
from pgrouse.publishing.trace_context import TRACEPARENT, TRACESTATE
from pgrouse.telemetry import names

W3C = TraceContextTextMapPropagator()
# The default limit of the SDK for the links of a span.
MAX_LINKS = 128


def current() -> dict[str, str]:
    """Return the headers of the current span; none if there is no span."""
    headers: dict[str, str] = {}
    W3C.inject(headers)
    return headers


def headers_of(span: trace.Span) -> dict[str, str]:
    """Return the headers of a span; none if it has no valid context."""
    headers: dict[str, str] = {}
    W3C.inject(headers, trace.set_span_in_context(span, context.Context()))
    return headers


@contextmanager
def within(headers: Mapping[str, str]) -> Iterator[None]:
    """Make the span of these headers the current one."""
    token = context.attach(W3C.extract(headers))
    try:
        yield
    finally:
        context.detach(token)


def links(messages: Iterable[Message]) -> list[trace.Link]:
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
    # In an empty context: the current span would be taken for the sender if the headers are invalid.
    found = trace.get_current_span(W3C.extract(texts, context.Context())).get_span_context()
    return found if found.is_valid else None
