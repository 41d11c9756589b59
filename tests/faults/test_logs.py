"""Which errors in the logs of a storm count as defects, and which the storm caused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faults.intruders import HOSTILE, VISITOR
from tests.faults.logs import NOTICED_WITHIN_S, Disturbances, is_expected_of_daemon, is_expected_of_server

NOON = 1_767_268_800.0  # 2026-01-01 12:00 UTC
DISTURBED = Disturbances([(NOON - 10, NOON - 5)])
LONG_AGO = Disturbances([(NOON - 10 - 2 * NOTICED_WITHIN_S, NOON - 5 - 2 * NOTICED_WITHIN_S)])


def of_server(severity: str, state: str, user: str = "postgres", disturbed: Disturbances = DISTURBED) -> bool:
    entry = {"timestamp": "2026-01-01 12:00:00.000 UTC", "error_severity": severity, "state_code": state, "user": user}
    return is_expected_of_server(entry, disturbed)


def of_daemon(event: str, disturbed: Disturbances = DISTURBED, **more: Any) -> bool:
    entry = {"timestamp": "2026-01-01T12:00:00.000000Z", "event": event, "level": "warning", **more}
    return is_expected_of_daemon(entry, disturbed)


@pytest.mark.parametrize("state", ["23502", "23505", "40P01", "42501", "22023", "55P03", "XX000"])
def test_an_error_of_a_statement_is_a_defect_whatever_else_happened(state: str) -> None:
    assert not of_server("ERROR", state)


@pytest.mark.parametrize(("user", "state"), [(VISITOR, "42501"), (HOSTILE, "23514"), (HOSTILE, "54000")])
def test_an_attacker_may_be_refused_and_others_may_not(user: str, state: str) -> None:
    assert of_server("ERROR", state, user)
    assert not of_server("ERROR", state)


@pytest.mark.parametrize(
    ("severity", "state"),
    [
        ("FATAL", "57P01"),
        ("FATAL", "57014"),
        ("FATAL", "08006"),
        ("FATAL", "08P01"),
        ("ERROR", "57014"),
        ("ERROR", "08006"),
    ],
)
def test_a_connection_may_end_soon_after_a_fault_and_not_without_one(severity: str, state: str) -> None:
    assert of_server(severity, state)
    assert not of_server(severity, state, disturbed=LONG_AGO)
    assert not of_server(severity, state, disturbed=Disturbances())


@pytest.mark.parametrize("state", ["53300", "28000", "XX000"])
def test_other_ends_of_sessions_are_defects(state: str) -> None:
    assert not of_server("FATAL", state)


def test_a_transaction_may_stay_open_soon_after_a_fault_and_not_without_one() -> None:
    assert of_daemon("message.completion_open", level="error")
    assert not of_daemon("message.completion_open", LONG_AGO, level="error")


@pytest.mark.parametrize("event", ["loop.failed", "heartbeat.failed", "attempt.failed"])
def test_a_daemon_may_report_a_lost_connection_soon_after_a_fault_and_nothing_else(event: str) -> None:
    lost = "consuming input failed: server closed the connection unexpectedly"
    assert of_daemon(event, reason=lost)
    assert not of_daemon(event, LONG_AGO, reason=lost)
    assert not of_daemon(event, reason='null value in column "priority" of relation "low_water"')


def test_a_handler_may_fail_as_it_was_told_at_any_time() -> None:
    assert of_daemon("attempt.failed", Disturbances(), reason="ZeroDivisionError: not yet")


@pytest.mark.parametrize("event", ["loop.crashed", "settle.refused", "tick.failed", "plain"])
def test_what_only_a_bug_logs_is_a_defect(event: str) -> None:
    assert not of_daemon(event)


@pytest.mark.parametrize("level", ["error", "critical"])
def test_whatever_a_daemon_calls_an_error_is_a_defect(level: str) -> None:
    assert not of_daemon("hook.failed", level=level)
    assert of_daemon("shutdown.timed_out")
