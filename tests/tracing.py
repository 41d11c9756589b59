"""OpenTelemetry for tests within this process: providers that record everything, and are removed afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry import trace
from opentelemetry.metrics import _internal as metrics_state
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


class Telemetry:
    """What OpenTelemetry recorded."""

    def __init__(self) -> None:
        self._spans, self._metrics = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        self.meters = MeterProvider([self._metrics], shutdown_on_exit=False)
        self.tracer = self.tracers.get_tracer("test")

    def spans(self, name: str) -> list[ReadableSpan]:
        """Return the ended spans of this name, in the order of their ends."""
        return [span for span in self._spans.get_finished_spans() if span.name == name]

    def span(self, name: str) -> ReadableSpan:
        """Return the only ended span of this name."""
        (found,) = self.spans(name)
        return found

    def points(self, metric: str) -> list[Any]:
        """Return the data points of a metric."""
        data = self._metrics.get_metrics_data()
        scopes = [scope for resource in data.resource_metrics for scope in resource.scope_metrics] if data else []
        return [p for scope in scopes for each in scope.metrics if each.name == metric for p in each.data.data_points]


@contextmanager
def tracing() -> Iterator[Telemetry]:
    """Set providers for this process, and remove them again: later messages are not traced."""
    telemetry = Telemetry()
    before = trace._TRACER_PROVIDER, metrics_state._METER_PROVIDER
    trace._TRACER_PROVIDER, metrics_state._METER_PROVIDER = telemetry.tracers, telemetry.meters
    try:
        yield telemetry
    finally:
        trace._TRACER_PROVIDER, metrics_state._METER_PROVIDER = before
        telemetry.tracers.shutdown()
        telemetry.meters.shutdown()


def traceparent(span: Any) -> str:
    """Write the context of a span as its header has it."""
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
