"""What probes are told: alive while its threads turn, ready while it can do its work."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from pgrouse.worker.claim_planner import Room
from pgrouse.worker.listener import Mode
from pgrouse.worker.health import Check, Parts, Pulse, Vitals

FULL, FREE = Room(["job"], None, 0), Room(["job"], None, 10)


def failed(checks: list[Check]) -> list[str]:
    return [check.name for check in checks if not check.ok]


def vitals(**parts: Any) -> Vitals:
    """Those of a daemon that is well, but for what is given."""
    now = time.monotonic()
    given = {
        "mode": Mode.LISTENING,
        "seen_at": now,
        "is_failing": False,
        "still_s": 0.1,
        "heard_at": now,
        "room": FREE,
        **parts,
    }
    made = Vitals(alive_within_s=30, patience_s=10)
    heartbeat: Any = SimpleNamespace(**{name: given[name] for name in ("seen_at", "is_failing", "still_s")})
    listener: Any = SimpleNamespace(mode=given["mode"])
    claimer: Any = SimpleNamespace(heard_at=given["heard_at"])
    crew: Any = SimpleNamespace(room=lambda: given["room"])
    made.parts = Parts(listener, heartbeat, claimer, crew, poll_s=5)
    return made


def test_a_daemon_that_is_well_is_alive_and_ready() -> None:
    assert (failed(vitals().live()), failed(vitals().ready())) == ([], [])


@pytest.mark.parametrize(
    ("part", "value", "name"),
    [
        ("mode", Mode.DEGRADED, "listener"),
        ("mode", Mode.CONNECTING, "listener"),
        ("is_failing", True, "database"),
        ("seen_at", 1.0, "database"),
        ("heard_at", -100.0, "claims"),
    ],
)
def test_what_keeps_it_from_its_work_makes_it_not_ready_and_is_no_reason_to_kill_it(
    part: str, value: object, name: str
) -> None:
    ill = vitals(**{part: value})

    assert (failed(ill.ready()), failed(ill.live())) == ([name], [])


def test_a_heartbeat_that_stands_still_is_a_reason_to_kill_it() -> None:
    assert failed(vitals(still_s=47).live()) == []
    assert failed(vitals(still_s=49).live()) == ["heartbeat"]


def test_whoever_has_no_place_free_claims_nothing_and_is_well() -> None:
    assert failed(vitals(heard_at=time.monotonic() - 3600, room=FULL).ready()) == []


def test_a_daemon_that_drains_is_not_ready() -> None:
    stopping = vitals()
    stopping.draining = True

    assert (failed(stopping.ready()), failed(stopping.live())) == (["draining"], [])


def test_before_the_database_has_answered_it_is_alive_and_not_ready() -> None:
    new = Vitals(alive_within_s=30, patience_s=10)

    assert (failed(new.ready()), failed(new.live())) == (["database"], [])


async def test_an_event_loop_that_turns_owes_no_answer() -> None:
    pulse = Pulse()
    pulse.follow(asyncio.get_running_loop())
    await asyncio.to_thread(pulse.ask)
    await asyncio.sleep(0)

    assert pulse.lag_s == 0


async def test_an_event_loop_that_is_blocked_owes_one_since_it_was_asked() -> None:
    pulse = Pulse()
    pulse.follow(asyncio.get_running_loop())
    pulse.ask()
    time.sleep(0.01)  # noqa: ASYNC251 - that is what a fault does
    pulse.ask()

    assert pulse.lag_s >= 0.01
    await asyncio.sleep(0)
    assert pulse.lag_s == 0


def test_nobody_is_asked_before_there_is_a_loop_and_one_that_is_closed_is_no_error() -> None:
    pulse = Pulse()
    pulse.ask()
    assert pulse.lag_s == 0
    loop = asyncio.new_event_loop()
    loop.close()
    pulse.follow(loop)

    pulse.ask()
