"""`pgrouse demo` from its first line to its verdict, on files of the test."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.demo.process import Demo
from tests.server.postgres import Database

pytestmark = pytest.mark.slow
FILES = 44  # those of `files` without the link, and the interpreter
BINARY = 3


@pytest.fixture(scope="module")
def report(undisturbed: tuple[Demo, Database]) -> dict[str, Any]:
    return dict(json.loads(undisturbed[0].out))


@pytest.fixture(scope="module")
def story(undisturbed: tuple[Demo, Database]) -> str:
    return undisturbed[0].err


def results(report: dict[str, Any], topic: str) -> dict[str, int]:
    (row,) = [row for row in report["topics"] if row["topic"] == topic]
    return {name: number for name, number in row.items() if number and name != "topic"}


def test_the_books_balance_and_the_exit_code_is_0(undisturbed: tuple[Demo, Database], report: dict[str, Any]) -> None:
    assert undisturbed[0].end() == 0
    assert report["balanced"] is True
    assert [check["name"] for check in report["checks"] if check["ok"]] == [
        "one_place",
        "once",
        "files",
        "outcomes",
        "killed",
        "alerts",
    ]


def test_every_file_is_read_once_and_binary_files_are_rejected(report: dict[str, Any]) -> None:
    assert results(report, "file.read") == {"published": FILES, "success": FILES - BINARY, "rejected": BINARY}


def test_a_failed_handler_is_retried_after_its_backoff_and_dies_after_its_last_attempt(
    report: dict[str, Any],
) -> None:
    assert results(report, "mail.send") == {"published": 3, "failed": 3}
    first, second = report["retry_pauses_s"]
    assert first >= 0.4
    assert second >= 0.8


def test_messages_of_a_killed_worker_are_retried_or_dead_by_their_attempts(
    report: dict[str, Any],
) -> None:
    held = report["killed"]["held"]

    assert held["invoice.render"] > 0
    assert held["label.print"] > 0
    (killed,) = [check["text"] for check in report["checks"] if check["name"] == "killed"]
    back = sum(held.values()) - held["label.print"]
    assert killed.endswith(f": {back} were processed by others, {held['label.print']} are lock_expired")
    assert results(report, "label.print")["lock_expired"] >= held["label.print"]
    assert set(results(report, "invoice.render")) == {"published", "success"}
    # Their locks last 2 s, those of a topic without a policy 30 s.
    assert 0 < report["killed"]["freed_after_s"] < 25


def test_wake_latencies_are_measured_in_their_order(report: dict[str, Any]) -> None:
    wake = report["wake"]

    assert wake["publishes"] == results(report, "orders.created")["success"] == 100
    assert -1 < wake["p50_ms"] <= wake["p99_ms"] <= wake["max_ms"]


def test_a_message_without_a_notification_waits_no_longer_than_the_poll(report: dict[str, Any]) -> None:
    lost = report["lost_notifications"]

    assert results(report, "orders.overnight") == {"published": 3, "success": 3}
    # The machine may delay one of the three.
    _, middle, longest = sorted(lost["after_s"])
    assert report["wake"]["p50_ms"] / 1000 < middle < 5
    assert longest < 30
    assert lost["poll"] == "2s"


def test_the_alert_of_each_kind_of_death_is_received_and_shown(story: str) -> None:
    alerts = [line.split("received: ")[1] for line in story.splitlines() if line.startswith("alert")]

    assert {tuple(line.partition(" (")[0].split(", ")[1:]) for line in alerts} == {
        ("file.read", "rejected"),
        ("mail.send", "failed"),
        ("label.print", "lock_expired"),
    }


def test_output_without_a_terminal_is_plain_lines(story: str) -> None:
    assert "\x1b" not in story
    assert "\r" not in story
    assert [line.split()[0] for line in story.splitlines() if line and line[0].islower()][:4] == [
        "demo",
        "database",
        "schema",
        "workers",
    ]
    assert any(line.startswith("...") and "/s, " in line for line in story.splitlines())
    assert story.splitlines()[-1].startswith("result    all checks passed")


def test_the_table_has_a_row_per_topic_and_their_sum(story: str, report: dict[str, Any]) -> None:
    lines = [line.split() for line in story.splitlines()]
    titles = next(line for line in lines if line[:1] == ["TOPIC"])
    total = next(line for line in lines if line[:1] == ["all"])

    assert titles == ["TOPIC", "PUBLISHED", "SUCCESS", "REJECTED", "FAILED", "LOCK_EXPIRED", "WAITING"]
    assert int(total[1].replace(",", "")) == sum(row["published"] for row in report["topics"])


def test_the_users_database_is_unchanged_afterwards(
    undisturbed: tuple[Demo, Database], eventually: Callable[..., bool]
) -> None:
    conn = undisturbed[1].connect()

    schemas = conn.execute("SELECT nspname FROM pg_namespace WHERE nspname IN ('demo', 'messages')").fetchall()
    assert schemas == []
    others = "SELECT FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    eventually(lambda: conn.execute(others).rowcount == 0)
