"""The providers of spans and metrics, with OTLP/HTTP exporters as the OTEL_* environment variables configure them.

If providers were set before (by a handler's module, or by `opentelemetry-instrument`), they are kept. Exports run on
threads of the SDK with bounded queues: if the collector is gone, spans are lost, and nothing else.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pgrouse.config import config
from pgrouse.errors import ConfigError
from pgrouse.telemetry import names

try:
    from opentelemetry import metrics, trace
    from opentelemetry.metrics._internal import _ProxyMeterProvider
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from pgrouse.telemetry import otlp_exporter
except ImportError as error:
    raise ConfigError("otel.enabled needs more packages: pip install 'pgrouse[otel]'") from error

HTTP = "http/protobuf"


@dataclass(frozen=True)
class TelemetryProviders:
    """The providers of this process, which are shut down in order.

    Attributes:
        flush_s: how long the shutdown may take.
    """

    flush_s: float
    _closing: list[Callable[[], object]] = field(default_factory=list)

    def shutdown(self) -> None:
        """Export what remains, as far as the time allows. Blocks; never raises."""
        threads = [threading.Thread(target=each, name="otel-flush", daemon=True) for each in self._closing]
        for each in threads:
            each.start()
        share = self.flush_s / max(1, len(threads))
        for each in threads:
            each.join(share)


def set_providers(settings: config.OtelSettings, instance: str) -> TelemetryProviders:
    """Set the providers of this process, unless they are set already.

    Args:
        settings: the section `[otel]`.
        instance: the name of this process: `service.instance.id`.

    Raises:
        ConfigError: the environment asks for an exporter that is not available.
    """
    resource = Resource.create({names.SERVICE_INSTANCE_ID: instance, **_service()})
    flush_s = settings.flush_timeout.total_seconds()
    return TelemetryProviders(flush_s, [_traces(resource, flush_s), _metrics(resource, flush_s)])


def _service() -> dict[str, str]:
    """Return pgrouse's service name, unless the environment sets one: the value given to the SDK would override it."""
    named = f"{names.SERVICE_NAME}=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return {} if named or os.environ.get("OTEL_SERVICE_NAME") else {names.SERVICE_NAME: "pgrouse"}


def _traces(resource: Resource, flush_s: float) -> Callable[[], object]:
    given = trace.get_tracer_provider()
    if not isinstance(given, trace.ProxyTracerProvider):
        return _flush_of(given, flush_s)
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    if _is_wanted("TRACES"):
        provider.add_span_processor(BatchSpanProcessor(otlp_exporter.SpanExporter()))
    trace.set_tracer_provider(provider)
    return provider.shutdown


def _metrics(resource: Resource, flush_s: float) -> Callable[[], object]:
    given = metrics.get_meter_provider()
    if not isinstance(given, _ProxyMeterProvider):
        return _flush_of(given, flush_s)
    readers = [PeriodicExportingMetricReader(otlp_exporter.MetricExporter())] if _is_wanted("METRICS") else []
    provider = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
    metrics.set_meter_provider(provider)
    return lambda: provider.shutdown(timeout_millis=flush_s * 1000)


def _flush_of(provider: Any, flush_s: float) -> Callable[[], object]:
    """Return the flush of a provider that pgrouse did not set and does not shut down; it may have no flush."""
    flush: Callable[[int], object] = getattr(provider, "force_flush", lambda _: None)
    return lambda: flush(round(flush_s * 1000))


def _is_wanted(signal: str) -> bool:
    """Return whether the environment wants this signal exported.

    Raises:
        ConfigError: the environment asks for something else than OTLP over HTTP.
    """
    variable = f"OTEL_{signal}_EXPORTER"
    match os.environ.get(variable, "").strip() or "otlp":
        case "none":
            return False
        case "otlp":
            _check_protocol(signal)
            return True
        case other:
            raise ConfigError(f"{variable}={other} cannot be used: it must be otlp or none")


def _check_protocol(signal: str) -> None:
    for variable in (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        protocol = os.environ.get(variable)
        if protocol and protocol != HTTP:
            raise ConfigError(f"{variable}={protocol} cannot be used: it must be {HTTP}")
