"""Where spans and metrics go: providers of the SDK with exporters over OTLP/HTTP, as the OTEL_* variables of the environment say.

Whoever has set providers before (a handler's module, `opentelemetry-instrument`) keeps them. Exporting happens on threads of the SDK with
bounded queues: a collector that is gone costs spans, and nothing else.
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

    from pgrouse.telemetry import otlp_exporter as exporter
except ImportError as error:
    raise ConfigError("otel.enabled needs more packages: pip install 'pgrouse[otel]'") from error

HTTP = "http/protobuf"


@dataclass(frozen=True)
class Exporting:
    """What has to be ended in order.

    Attributes:
        flush_s: how long that may take.
    """

    flush_s: float
    _closing: list[Callable[[], object]] = field(default_factory=list)

    def end(self) -> None:
        """Export what is left, as far as that is possible in the time. Blocks; fails never."""
        threads = [threading.Thread(target=each, name="otel-flush", daemon=True) for each in self._closing]
        for each in threads:
            each.start()
        share = self.flush_s / max(1, len(threads))
        for each in threads:
            each.join(share)


def begin(settings: config.Otel, instance: str) -> Exporting:
    """Set the providers of this process, unless somebody has.

    Args:
        settings: the section `[otel]`.
        instance: what to call this process: `service.instance.id`.

    Raises:
        ConfigError: the environment wants an exporter that is not there.
    """
    resource = Resource.create({names.SERVICE_INSTANCE_ID: instance, **_service()})
    flush_s = settings.flush.total_seconds()
    return Exporting(flush_s, [_traces(resource, flush_s), _metrics(resource, flush_s)])


def _service() -> dict[str, str]:
    """Return our name, unless the environment has another one: what is given to the SDK would win."""
    named = f"{names.SERVICE_NAME}=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return {} if named or os.environ.get("OTEL_SERVICE_NAME") else {names.SERVICE_NAME: "pgrouse"}


def _traces(resource: Resource, flush_s: float) -> Callable[[], object]:
    given = trace.get_tracer_provider()
    if not isinstance(given, trace.ProxyTracerProvider):
        return _flush_of(given, flush_s)
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    if _is_wanted("TRACES"):
        provider.add_span_processor(BatchSpanProcessor(exporter.Spans()))
    trace.set_tracer_provider(provider)
    return provider.shutdown


def _metrics(resource: Resource, flush_s: float) -> Callable[[], object]:
    given = metrics.get_meter_provider()
    if not isinstance(given, _ProxyMeterProvider):
        return _flush_of(given, flush_s)
    readers = [PeriodicExportingMetricReader(exporter.Metrics())] if _is_wanted("METRICS") else []
    provider = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
    metrics.set_meter_provider(provider)
    return lambda: provider.shutdown(timeout_millis=flush_s * 1000)


def _flush_of(provider: Any, flush_s: float) -> Callable[[], object]:
    """What is not ours is not shut down; of what has no flush nothing can be asked."""
    flush: Callable[[int], object] = getattr(provider, "force_flush", lambda _: None)
    return lambda: flush(round(flush_s * 1000))


def _is_wanted(signal: str) -> bool:
    """Say whether the environment wants this signal exported.

    Raises:
        ConfigError: by something else than OTLP over HTTP.
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
