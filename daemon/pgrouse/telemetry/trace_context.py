"""The W3C trace context that a message carries in its headers.

`traceparent` and `tracestate` go from the publisher to the handler.

This module never imports OpenTelemetry. A process that has a span has imported it already; in other processes this
costs one lookup in a dict.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pgrouse.telemetry.publish_span import PublishSpan

# The result of a publish: the id of its message, or the number of messages.
P = TypeVar("P", bound=int)

TRACEPARENT, TRACESTATE = "traceparent", "tracestate"
API_MODULES = ("opentelemetry.trace", "opentelemetry.metrics")
# The known version, with ids that are not all zeros.
VALID = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


class NoTrace:
    """The span of a publish without tracing: nothing is added or recorded."""

    __slots__ = ()

    def __enter__(self) -> NoTrace:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    carry = None

    def sent(self, published: P) -> P:
        """Note nothing."""
        return published

    def sent_many(self, published: P) -> P:
        """Note nothing."""
        return published


NO_TRACE = NoTrace()


def start_publish_span(conn: object, topic: str | None = None) -> NoTrace | PublishSpan:
    """Begin the span `send` if this process uses OpenTelemetry.

    Without a topic it is for many messages, whose topics are read as they come.
    """
    if not _is_used():
        return NO_TRACE
    try:
        from pgrouse.telemetry.publish_span import PublishSpan  # noqa: PLC0415 - extra otel

        return PublishSpan(conn, topic)
    except (ImportError, AttributeError, TypeError):
        # The application may have any version of OpenTelemetry; a version that is too old must not prevent publishing.
        return NO_TRACE


def current() -> dict[str, str]:
    """Return the headers of the current span; none if there is no span."""
    if not _is_used():
        return {}
    from pgrouse.telemetry import propagation  # noqa: PLC0415 - extra otel

    return propagation.current()


def inherited(headers: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers of a message that a message published by its handler inherits.

    None within a span, which has more information.
    """
    parent, state = headers.get(TRACEPARENT), headers.get(TRACESTATE)
    if not isinstance(parent, str) or not VALID.fullmatch(parent) or current():
        return {}
    return {TRACEPARENT: parent, TRACESTATE: state} if isinstance(state, str) else {TRACEPARENT: parent}


def use_context(headers: Mapping[str, str]) -> AbstractContextManager[object]:
    """Make the span that these headers name the current one for a block; do nothing without headers."""
    if not headers:
        return nullcontext()
    from pgrouse.telemetry import propagation  # noqa: PLC0415 - extra otel

    return propagation.within(headers)


def log_keys() -> dict[str, str]:
    """Return `trace_id` and `span_id` of the current span in hexadecimal, as in logs; nothing if there is no span."""
    found = current().get(TRACEPARENT)
    if found is None:
        return {}
    _, trace_id, span_id, _ = found.split("-")
    return {"trace_id": trace_id, "span_id": span_id}


def from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the headers in TRACEPARENT and TRACESTATE.

    With them a traced shell or job passes its context to commands.
    """
    parent, state = environ.get("TRACEPARENT", ""), environ.get("TRACESTATE", "")
    if not VALID.fullmatch(parent):
        return {}
    return {TRACEPARENT: parent, TRACESTATE: state} if state else {TRACEPARENT: parent}


def _is_used() -> bool:
    """Return whether this process traces or measures.

    Many libraries import OpenTelemetry for others: that alone has no cost.
    """
    trace, metrics = sys.modules.get("opentelemetry.trace"), sys.modules.get("opentelemetry.metrics")
    try:
        return trace is not None and (
            _does_something(trace.get_tracer_provider())
            or trace.get_current_span().get_span_context().is_valid
            or (metrics is not None and _does_something(metrics.get_meter_provider()))
        )
    except AttributeError:  # the module is being imported at this moment, or is too old
        return False


def _does_something(provider: object) -> bool:
    """Return whether a provider is not one of the API's, which do nothing."""
    return not type(provider).__module__.startswith(API_MODULES)
