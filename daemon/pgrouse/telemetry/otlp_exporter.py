"""The OTLP/HTTP exporters. Failures are logged as events: the first of a row, then each time their number doubles."""

from __future__ import annotations

import logging
from typing import Any

from opentelemetry.exporter.otlp.proto.http import metric_exporter, trace_exporter
from opentelemetry.sdk.metrics.export import MetricExportResult
from opentelemetry.sdk.trace.export import SpanExportResult

from pgrouse.logging import events
from pgrouse.logging.event_logger import log


class ExportLogFilter(logging.Filter):
    """Keeps the first log message of an exporter since the last export, instead of logging all of them."""

    def __init__(self) -> None:
        super().__init__()
        self._first_message: str | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep the first message."""
        self._first_message = self._first_message or record.getMessage()
        return False

    def take(self) -> str:
        """Return the message on one line, shortened, and forget it."""
        text, self._first_message = self._first_message, None
        return " ".join((text or "no reason was given").split())[:300]


class ExportFailures:
    """Counts the consecutive failures of one exporter.

    Args:
        signal: what it exports.
        logger: the name of its logger.
    """

    def __init__(self, signal: str, logger: str) -> None:
        self.signal, self._count, self._log_filter = signal, 0, ExportLogFilter()
        logging.getLogger(logger).addFilter(self._log_filter)

    def record(self, *, succeeded: bool) -> None:
        """Record the result of an export."""
        reason = self._log_filter.take()
        if succeeded:
            if self._count:
                log.info(events.TELEMETRY_RESTORED, signal=self.signal, failures=self._count)
            self._count = 0
            return
        self._count += 1
        if self._count & (self._count - 1) == 0:
            log.warning(events.TELEMETRY_FAILED, signal=self.signal, failures=self._count, reason=reason)


class SpanExporter(trace_exporter.OTLPSpanExporter):
    """Exports spans."""

    def __init__(self) -> None:
        super().__init__()
        self._failures = ExportFailures("traces", trace_exporter.__name__)

    def export(self, spans: Any) -> SpanExportResult:
        """Export; log failures."""
        result = super().export(spans)
        self._failures.record(succeeded=result is SpanExportResult.SUCCESS)
        return result


class MetricExporter(metric_exporter.OTLPMetricExporter):
    """Exports metrics."""

    def __init__(self) -> None:
        super().__init__()
        self._failures = ExportFailures("metrics", metric_exporter.__name__)

    def export(self, metrics_data: Any, timeout_millis: float | None = 10_000, **more: Any) -> MetricExportResult:
        """Export; log failures."""
        result = super().export(metrics_data, timeout_millis, **more)
        self._failures.record(succeeded=result is MetricExportResult.SUCCESS)
        return result
