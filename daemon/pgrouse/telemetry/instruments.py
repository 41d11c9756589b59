"""The tracer and the instruments of the messaging conventions, created once for each pair of providers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version

from opentelemetry import metrics, trace

from pgrouse.telemetry import names


@dataclass(frozen=True)
class Instruments:
    """The tracer and instruments for spans and metrics.

    Attributes:
        tracer: creates the spans.
        sent: counts messages that were sent to the database.
        consumed: counts messages that were claimed.
        operation: how long sending, receiving and settling took, in seconds.
        process: how long handlers took, in seconds.
    """

    tracer: trace.Tracer
    sent: metrics.Counter
    consumed: metrics.Counter
    operation: metrics.Histogram
    process: metrics.Histogram


def instruments() -> Instruments:
    """Return the instruments of the current providers: an application may set its own at any time."""
    return _of(trace.get_tracer_provider(), metrics.get_meter_provider())


@lru_cache(maxsize=8)
def _of(tracers: trace.TracerProvider, meters: metrics.MeterProvider) -> Instruments:
    meter = meters.get_meter(names.SCOPE, version("pgrouse"))

    def seconds(name: str, description: str) -> metrics.Histogram:
        bounds = names.DURATION_BOUNDS_S
        return meter.create_histogram(name, "s", description, explicit_bucket_boundaries_advisory=bounds)

    def messages(name: str, description: str) -> metrics.Counter:
        return meter.create_counter(name, "{message}", description)

    return Instruments(
        tracers.get_tracer(names.SCOPE, version("pgrouse")),
        messages(names.SENT_MESSAGES, "Number of messages that were sent to the database."),
        messages(names.CONSUMED_MESSAGES, "Number of messages that were claimed."),
        seconds(names.OPERATION_DURATION, "Duration of sending, receiving and settling."),
        seconds(names.PROCESS_DURATION, "Duration of handlers."),
    )
