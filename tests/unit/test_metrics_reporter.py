"""The reports of measures: what has grown since the last one, and the same again until it has acknowledged."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pgrouse.client.message import Message
from pgrouse.client.settlement import SettleKind, Settlement
from pgrouse.worker.claim_planner import WakeReason
from pgrouse.worker.metrics_recorder import MetricsRecorder
from pgrouse.worker.metrics_reporter import MetricsReport, MetricsReporter

Claimed = Callable[..., Message]


def told(report: MetricsReport | None) -> list[dict[str, Any]]:
    assert report is not None
    found: list[dict[str, Any]] = json.loads(report.measures)
    return found


def test_a_report_tells_what_has_grown_and_nothing_else(claimed: Claimed) -> None:
    metrics = MetricsRecorder(["job", "idle"])
    reports = MetricsReporter(metrics)
    metrics.record_claim([claimed(waited_s=0.0)], WakeReason.BUSY, 0)
    metrics.record_settled([Settlement(claimed(), SettleKind.COMPLETE)], [])

    assert told(reports.next()) == [{"topic": "job", "success": 1, "waits": {"1": 1}}]


def test_the_next_report_begins_where_the_last_one_ended(claimed: Claimed) -> None:
    metrics = MetricsRecorder()
    reports = MetricsReporter(metrics)
    metrics.record_settled([Settlement(claimed(), SettleKind.COMPLETE)], [])
    first = reports.next()
    reports.acknowledged()
    metrics.record_settled([Settlement(claimed(), SettleKind.COMPLETE)] * 2, [])
    metrics.record_settled([Settlement(claimed(), SettleKind.REJECT)], [])

    second = reports.next()

    assert told(second) == [{"topic": "job", "success": 2, "rejected": 1}]
    assert first is not None
    assert second is not None
    assert second.number > first.number


def test_a_report_that_has_not_arrived_stays_the_same_whatever_happens_meanwhile(claimed: Claimed) -> None:
    metrics = MetricsRecorder()
    reports = MetricsReporter(metrics)
    metrics.record_settled([Settlement(claimed(), SettleKind.COMPLETE)], [])
    first = reports.next()
    metrics.record_settled([Settlement(claimed(), SettleKind.COMPLETE)], [])

    assert reports.next() == first
    reports.acknowledged()
    assert told(reports.next()) == [{"topic": "job", "success": 1}]


def test_without_anything_new_there_is_no_report(claimed: Claimed) -> None:
    metrics = MetricsRecorder(["job"])
    reports = MetricsReporter(metrics)

    assert reports.next() is None
    metrics.record_settled([Settlement(claimed(), SettleKind.COMPLETE)], [])
    reports.next()
    reports.acknowledged()
    assert reports.next() is None
