"""The log of an outage of the collector: that it is away, why, and when it is back; not every try."""

from __future__ import annotations

import logging

from structlog.testing import LogCapture

from pgrouse.telemetry.otlp_exporter import ExportFailures


def test_repeated_failures_are_logged_at_each_doubling_and_the_recovery_once(logged: LogCapture) -> None:
    failures = ExportFailures("traces", "collector-1")

    for succeeded in (False, False, False, False, False, True, True):
        failures.record(succeeded=succeeded)

    assert [(e["event"], e["failures"]) for e in logged.entries] == [
        ("telemetry.export_failed", 1),
        ("telemetry.export_failed", 2),
        ("telemetry.export_failed", 4),
        ("telemetry.export_restored", 5),
    ]


def test_the_exporters_log_is_the_reason_and_is_not_logged_itself(logged: LogCapture) -> None:
    failures = ExportFailures("traces", "collector-2")
    logger = logging.getLogger("collector-2")
    written: list[logging.LogRecord] = []
    logger.addHandler(handler := logging.Handler())
    handler.emit = written.append  # type: ignore[method-assign]

    logger.warning("connection\nrefused, retrying in %ss", 1)
    logger.error("gave up")
    failures.record(succeeded=False)

    assert logged.entries[0]["reason"] == "connection refused, retrying in 1s"
    assert written == []
