"""The reports of measures: the increase since the last one, repeated until it is acknowledged."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pgrouse.client.message import Message
from pgrouse.client.processing.settlement import SettleKind, Settlement
from pgrouse.worker.reporting.metrics_recorder import MetricsRecorder
from pgrouse.worker.reporting.metrics_reporter import MetricsReport, MetricsReporter
from pgrouse.worker.reporting.wake_reason import WakeReason

Claimed = Callable[..., Message]


def nonzero(report: MetricsReport | None) -> list[dict[str, Any]]:
    assert report is not None
    found: list[dict[str, Any]] = json.loads(report.measures)
    return found


def test_a_report_has_only_what_has_grown(claimed: Claimed) -> None:
    metrics = MetricsRecorder(["job", "idle"])
    reports = MetricsReporter(metrics)
    metrics.record_claim([claimed(waited_s=0.0)], WakeReason.BUSY, 0)
    metrics.record_settled([Settlement(claimed(), SettleKind.COMPLETE)], [])

    assert nonzero(reports.next()) == [{"topic": "job", "success": 1, "waits": {"1": 1}}]
