"""The reports of measures: what has grown since the last one, and the same again until it has arrived."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pgrouse.worker.claim_planner import Source
from pgrouse.worker.metrics_reporter import Report, Reports
from pgrouse.client.message import Message
from pgrouse.worker.metrics_recorder import Meters
from pgrouse.handlers.outcome import Ended, Kind

Claimed = Callable[..., Message]


def told(report: Report | None) -> list[dict[str, Any]]:
    assert report is not None
    found: list[dict[str, Any]] = json.loads(report.measures)
    return found


def test_a_report_tells_what_has_grown_and_nothing_else(claimed: Claimed) -> None:
    meters = Meters(["job", "idle"])
    reports = Reports(meters)
    meters.claimed([claimed(waited_s=0.0)], Source.BUSY, 0)
    meters.settled([Ended(claimed(), Kind.COMPLETE)], [])

    assert told(reports.next()) == [{"topic": "job", "success": 1, "waits": {"1": 1}}]


def test_the_next_report_begins_where_the_last_one_ended(claimed: Claimed) -> None:
    meters = Meters()
    reports = Reports(meters)
    meters.settled([Ended(claimed(), Kind.COMPLETE)], [])
    first = reports.next()
    reports.arrived()
    meters.settled([Ended(claimed(), Kind.COMPLETE)] * 2, [])
    meters.settled([Ended(claimed(), Kind.REJECT)], [])

    second = reports.next()

    assert told(second) == [{"topic": "job", "success": 2, "rejected": 1}]
    assert first is not None
    assert second is not None
    assert second.number > first.number


def test_a_report_that_has_not_arrived_stays_the_same_whatever_happens_meanwhile(claimed: Claimed) -> None:
    meters = Meters()
    reports = Reports(meters)
    meters.settled([Ended(claimed(), Kind.COMPLETE)], [])
    first = reports.next()
    meters.settled([Ended(claimed(), Kind.COMPLETE)], [])

    assert reports.next() == first
    reports.arrived()
    assert told(reports.next()) == [{"topic": "job", "success": 1}]


def test_without_anything_new_there_is_no_report(claimed: Claimed) -> None:
    meters = Meters(["job"])
    reports = Reports(meters)

    assert reports.next() is None
    meters.settled([Ended(claimed(), Kind.COMPLETE)], [])
    reports.next()
    reports.arrived()
    assert reports.next() is None
