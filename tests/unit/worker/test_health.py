"""Probes: a daemon is live while its threads run, and ready while it can work."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from pgrouse.metrics.health import HealthCheck, LoopMonitor
from pgrouse.worker.execution.capacity import Capacity
from pgrouse.worker.health import DaemonParts, HealthProbe
from pgrouse.worker.loop.listener import ListenerMode

FULL, FREE = Capacity(["job"], None, 0), Capacity(["job"], None, 10)


def failed(checks: list[HealthCheck]) -> list[str]:
    return [check.name for check in checks if not check.ok]


def health(**parts: Any) -> HealthProbe:
    """The state of a healthy daemon, with these changes."""
    now = time.monotonic()
    given = {
        "mode": ListenerMode.LISTENING,
        "last_seen_at": now,
        "is_failing": False,
        "beat_age_s": 0.1,
        "last_claim_at": now,
        "room": FREE,
        **parts,
    }
    made = HealthProbe(liveness_timeout_s=30, heartbeat_grace_s=10)
    heartbeat: Any = SimpleNamespace(**{name: given[name] for name in ("last_seen_at", "is_failing", "beat_age_s")})
    listener: Any = SimpleNamespace(mode=given["mode"])
    planner: Any = SimpleNamespace(last_claim_at=given["last_claim_at"])
    executor: Any = SimpleNamespace(capacity=lambda: given["room"])
    made.parts = DaemonParts(listener, heartbeat, planner, executor, poll_s=5)
    return made


def test_a_healthy_daemon_is_live_and_ready() -> None:
    assert (failed(health().live()), failed(health().ready())) == ([], [])


@pytest.mark.parametrize(
    ("part", "value", "name"),
    [
        ("mode", ListenerMode.DEGRADED, "listener"),
        ("mode", ListenerMode.CONNECTING, "listener"),
        ("is_failing", True, "database"),
        ("last_seen_at", 1.0, "database"),
        ("last_claim_at", -100.0, "claims"),
    ],
)
def test_a_daemon_that_cannot_work_is_not_ready_but_live(part: str, value: object, name: str) -> None:
    ill = health(**{part: value})

    assert (failed(ill.ready()), failed(ill.live())) == ([name], [])


def test_a_stalled_heartbeat_is_not_live() -> None:
    assert failed(health(beat_age_s=47).live()) == []
    assert failed(health(beat_age_s=49).live()) == ["heartbeat"]


def test_a_daemon_without_a_free_slot_is_healthy_without_claims() -> None:
    assert failed(health(last_claim_at=time.monotonic() - 3600, room=FULL).ready()) == []


async def test_a_running_event_loop_has_no_pending_probe() -> None:
    loop_monitor = LoopMonitor()
    loop_monitor.watch(asyncio.get_running_loop())
    await asyncio.to_thread(loop_monitor.ask)
    await asyncio.sleep(0)

    assert loop_monitor.lag_s == 0


async def test_a_blocked_event_loop_has_a_pending_probe() -> None:
    loop_monitor = LoopMonitor()
    loop_monitor.watch(asyncio.get_running_loop())
    loop_monitor.ask()
    time.sleep(0.01)  # noqa: ASYNC251 - that is what a fault does
    loop_monitor.ask()

    assert loop_monitor.lag_s >= 0.01
    await asyncio.sleep(0)
    assert loop_monitor.lag_s == 0


def test_a_missing_or_closed_event_loop_is_not_probed() -> None:
    loop_monitor = LoopMonitor()
    loop_monitor.ask()
    assert loop_monitor.lag_s == 0
    loop = asyncio.new_event_loop()
    loop.close()
    loop_monitor.watch(loop)

    loop_monitor.ask()
