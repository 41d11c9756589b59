"""Trace contexts as headers, with OpenTelemetry's W3C propagator.

Baggage is not passed on: it may hold data that must not be stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import context, trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

W3C = TraceContextTextMapPropagator()


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
