"""What probes are told: alive while its threads turn, ready while it can do its work."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from pgrouse.metrics.health import HealthCheck, LoopMonitor
from pgrouse.worker.claim_planner import Capacity
from pgrouse.worker.health import DaemonParts, HealthProbe
from pgrouse.worker.listener import ListenerMode

FULL, FREE = Capacity(["job"], None, 0), Capacity(["job"], None, 10)


def failed(checks: list[HealthCheck]) -> list[str]:
    return [check.name for check in checks if not check.ok]


def health(**parts: Any) -> HealthProbe:
    """Those of a daemon that is well, but for what is given."""
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


def test_a_daemon_that_is_well_is_alive_and_ready() -> None:
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
def test_what_keeps_it_from_its_work_makes_it_not_ready_and_is_no_reason_to_kill_it(
    part: str, value: object, name: str
) -> None:
    ill = health(**{part: value})

    assert (failed(ill.ready()), failed(ill.live())) == ([name], [])


def test_a_heartbeat_that_stands_still_is_a_reason_to_kill_it() -> None:
    assert failed(health(beat_age_s=47).live()) == []
    assert failed(health(beat_age_s=49).live()) == ["heartbeat"]


def test_whoever_has_no_place_free_claims_nothing_and_is_well() -> None:
    assert failed(health(last_claim_at=time.monotonic() - 3600, room=FULL).ready()) == []


def test_a_daemon_that_drains_is_not_ready() -> None:
    stopping = health()
    stopping.draining = True

    assert (failed(stopping.ready()), failed(stopping.live())) == (["draining"], [])


def test_before_the_database_has_answered_it_is_alive_and_not_ready() -> None:
    new = HealthProbe(liveness_timeout_s=30, heartbeat_grace_s=10)

    assert (failed(new.ready()), failed(new.live())) == (["database"], [])


async def test_an_event_loop_that_turns_owes_no_answer() -> None:
    loop_monitor = LoopMonitor()
    loop_monitor.watch(asyncio.get_running_loop())
    await asyncio.to_thread(loop_monitor.ask)
    await asyncio.sleep(0)

    assert loop_monitor.lag_s == 0


async def test_an_event_loop_that_is_blocked_owes_one_since_it_was_asked() -> None:
    loop_monitor = LoopMonitor()
    loop_monitor.watch(asyncio.get_running_loop())
    loop_monitor.ask()
    time.sleep(0.01)  # noqa: ASYNC251 - that is what a fault does
    loop_monitor.ask()

    assert loop_monitor.lag_s >= 0.01
    await asyncio.sleep(0)
    assert loop_monitor.lag_s == 0


def test_nobody_is_asked_before_there_is_a_loop_and_one_that_is_closed_is_no_error() -> None:
    loop_monitor = LoopMonitor()
    loop_monitor.ask()
    assert loop_monitor.lag_s == 0
    loop = asyncio.new_event_loop()
    loop.close()
    loop_monitor.watch(loop)

    loop_monitor.ask()
