"""`pgrouse cron`. The jobs are tested by tests/cron."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from tests.cli.shell import Ended, Shell
from tests.cron.minute import until_its_middle

pytestmark = pytest.mark.pg_cron


@pytest.fixture
def pgrouse(pgrouse: Shell, db: psycopg.Connection[Any]) -> Iterator[Shell]:
    """Commands on a database whose jobs are removed at the end."""
    until_its_middle(db)
    yield pgrouse
    pgrouse("cron", "remove")


def test_missing_jobs_are_a_problem_until_they_are_installed(pgrouse: Shell, eventually: Callable[..., Ended]) -> None:
    before = pgrouse("cron", "check")
    installed = pgrouse("cron", "install")

    def well() -> Ended | None:
        ended = pgrouse("cron", "check")
        return ended if ended.code == 0 else None

    # The launcher starts a moment after its server.
    after = eventually(well, within_s=60)

    assert before.code == 1
    assert "pg_cron has no job" in before.out
    assert "run `pgrouse cron install`" in before.out
    assert installed.code == 0
    assert "scheduled messages.tick" in installed.out
    assert after.out == "ok: pg_cron maintains the queue\n"


def test_json_lists_scheduled_existing_and_removed_jobs(pgrouse: Shell) -> None:
    scheduled = pgrouse("cron", "install", "--json").object["scheduled"]
    again = pgrouse("cron", "install", "--json").object
    removed = pgrouse("cron", "remove", "--json").object["removed"]
    findings = pgrouse("cron", "check", "--json").objects

    assert scheduled
    assert again == {"scheduled": [], "removed": []}
    assert sorted(removed) == sorted(scheduled)
    assert {finding["kind"] for finding in findings} == {"missing"}
    assert set(findings[0]) == {"kind", "job", "problem", "fix"}


def test_removing_absent_jobs_is_no_error(pgrouse: Shell) -> None:
    ended = pgrouse("cron", "remove")

    assert (ended.code, ended.out) == (0, "there are no jobs of pgrouse\n")
