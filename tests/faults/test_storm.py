"""Kill, freeze, restart, crash and cut, several at once, while messages are published and run in every way.

Nothing is lost, nothing ends twice.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from tests.faults.run import Run, shuffled
from tests.faults.storm import OF_DAEMONS, OF_THE_WEB, Storm
from tests.faults.system import System

NewScene = Callable[..., AbstractContextManager[System]]
# The same seed draws the same faults in the same order; their effect depends on the speed of the machine.
SEED = os.environ.get("PGROUSE_FAULTS_SEED") or str(time.time_ns())
MINUTES = float(os.environ.get("PGROUSE_FAULTS_MINUTES", "3"))


def faults_of(system: System, *, without: set[str]) -> list[str]:
    return [name for name in Storm(system, "").faults if name not in without]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_all_faults_together_lose_nothing_and_end_nothing_twice(new_system: NewScene) -> None:
    with new_system() as system:
        report = Run(system, SEED).under(shuffled(faults_of(system, without=OF_THE_WEB), 1, SEED), (0.2, 0.9))

    assert not report.findings, f"PGROUSE_FAULTS_SEED={SEED}\n{report}"


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_without_a_daemon_workers_over_http_lose_nothing_and_end_nothing_twice(new_system: NewScene) -> None:
    with new_system() as system:
        faults = shuffled(faults_of(system, without=OF_DAEMONS), 1, SEED)
        report = Run(system, SEED).without_a_daemon(faults, (0.1, 0.5))

    assert not report.findings, f"PGROUSE_FAULTS_SEED={SEED}\n{report}"


@pytest.mark.long
@pytest.mark.timeout(60 * MINUTES + 600)
def test_a_storm_of_minutes_loses_nothing_and_ends_nothing_twice(new_system: NewScene) -> None:
    with new_system() as system:
        faults = shuffled(faults_of(system, without=OF_THE_WEB), int(MINUTES * 10) + 1, SEED)
        report = Run(system, SEED).under(faults, (0.05, 1), daemons=3, for_s=60 * MINUTES)

    print(report)
    assert not report.findings, f"PGROUSE_FAULTS_SEED={SEED}\n{report}"
