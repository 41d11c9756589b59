"""The exporters over OTLP/HTTP, with their failures told as events: the first of a row, then every time their number doubles."""

from __future__ import annotations

import logging
from typing import Any

import structlog
from opentelemetry.exporter.otlp.proto.http import metric_exporter, trace_exporter
from opentelemetry.sdk.metrics.export import MetricExportResult
from opentelemetry.sdk.trace.export import SpanExportResult

from pgrouse import events

log = structlog.get_logger()


class Chatter(logging.Filter):
    """Keeps what an exporter says about its tries instead of logging each; the first since the last export counts."""

    def __init__(self) -> None:
        super().__init__()
        self._said: str | None = None

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep it."""
        self._said = self._said or record.getMessage()
        return False

    def take(self) -> str:
        """Return what was said, on one line that is not too long."""
        said, self._said = self._said, None
        return " ".join((said or "no reason was given").split())[:300]


class Failures:
    """The failures in a row of one exporter.

    Args:
        signal: what it exports.
        logger: the name of its logger.
    """

    def __init__(self, signal: str, logger: str) -> None:
        self.signal, self._count, self._chatter = signal, 0, Chatter()
        logging.getLogger(logger).addFilter(self._chatter)

    def take(self, *, succeeded: bool) -> None:
        """Take in how an export ended."""
        reason = self._chatter.take()
        if succeeded:
            if self._count:
                log.info(events.TELEMETRY_RESTORED, signal=self.signal, failures=self._count)
            self._count = 0
            return
        self._count += 1
        if self._count & (self._count - 1) == 0:
            log.warning(events.TELEMETRY_FAILED, signal=self.signal, failures=self._count, reason=reason)


class Spans(trace_exporter.OTLPSpanExporter):
    """Exports spans."""

    def __init__(self) -> None:
        super().__init__()
        self._failures = Failures("traces", trace_exporter.__name__)

    def export(self, spans: Any) -> SpanExportResult:
        """Export some; tell of failures."""
        result = super().export(spans)
        self._failures.take(succeeded=result is SpanExportResult.SUCCESS)
        return result


class Metrics(metric_exporter.OTLPMetricExporter):
    """Exports metrics."""

    def __init__(self) -> None:
        super().__init__()
        self._failures = Failures("metrics", metric_exporter.__name__)

    def export(self, metrics_data: Any, timeout_millis: float | None = 10_000, **more: Any) -> MetricExportResult:
        """Export some; tell of failures."""
        result = super().export(metrics_data, timeout_millis, **more)
        self._failures.take(succeeded=result is MetricExportResult.SUCCESS)
        return result
