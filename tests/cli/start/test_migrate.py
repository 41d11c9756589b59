"""`pgrouse migrate`."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from pgrouse.database.install import schema
from tests.cli.shell import Shell
from tests.server.postgres import Database


@pytest.fixture
def pgrouse(shell: Shell, empty_database: Database, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """Commands on a database without the schema."""
    monkeypatch.setenv("PGROUSE_DSN", empty_database.dsn)
    return shell


def applied(database: Database) -> int:
    """Return how many files the ledger has; 0 without a ledger."""
    conn = database.connect()
    if conn.execute("SELECT to_regclass('messages.migration')").fetchone() == (None,):
        return 0
    row = conn.execute("SELECT count(*) FROM messages.migration").fetchone()
    assert row is not None
    return int(row[0])


def test_migrate_installs_the_schema_and_reports_it_in_one_line(pgrouse: Shell, empty_database: Database) -> None:
    ended = pgrouse("migrate")

    files = len(list(schema.scripts()))
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == "the schema `messages` was brought up to date\n"
    assert applied(empty_database) == files


def test_a_second_migrate_does_nothing(pgrouse: Shell) -> None:
    pgrouse("migrate")

    ended = pgrouse("migrate")

    assert (ended.code, ended.out) == (0, "the schema `messages` is up to date\n")


def test_a_dry_run_prints_the_same_and_changes_nothing(pgrouse: Shell, empty_database: Database) -> None:
    ended = pgrouse("migrate", "--dry-run")

    assert ended.code == 0
    files = [f"would apply {script.name}" for script in schema.scripts()]
    assert ended.out.splitlines() == files
    assert applied(empty_database) == 0


def test_json_lists_the_files(pgrouse: Shell) -> None:
    first, second = pgrouse("migrate", "--json").object, pgrouse("migrate", "--json").object

    assert first["applied"] == [script.name for script in schema.scripts()]
    assert (first["dry_run"], second) == (False, {"applied": [], "dry_run": False})


def test_a_changed_migration_is_exit_code_78(pgrouse: Shell, empty_database: Database) -> None:
    pgrouse("migrate")
    empty_database.connect().execute("UPDATE messages.migration SET digest = 'other' WHERE name = '0001_message'")

    ended = pgrouse("migrate")

    assert ended.code == 78
    assert ended.err.startswith("pgrouse: migration 0001_message was edited after it was applied: restore its text")


def test_a_user_who_may_not_create_a_schema_gets_an_error_that_names_the_right(
    pgrouse: Shell, empty_database: Database, user_without_rights: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGROUSE_DSN", psycopg.conninfo.make_conninfo(empty_database.dsn, user=user_without_rights))

    ended = pgrouse("migrate")

    assert ended.code == 1
    assert ended.err.startswith("pgrouse: permission denied for database")
    assert "GRANT CREATE ON DATABASE" in ended.err


@pytest.mark.pg_cron
def test_with_cron_schedules_the_jobs(pgrouse: Shell) -> None:
    ended = pgrouse("migrate", "--cron")

    assert ended.code == 0
    assert "the jobs of pg_cron are up to date" in ended.out
    assert pgrouse("cron", "remove").code == 0


# Schedules


def test_migrate_applies_schedules_and_removes_those_that_are_gone(pgrouse: Shell, folder: Path) -> None:
    pgrouse("migrate")
    file = folder / "pgrouse.toml"
    file.write_text('[schedules.nightly]\ncron = "0 2 * * *"\ntopic = "report"')
    before = pgrouse("config", "check")
    planned = pgrouse("migrate", "--dry-run")
    applied = pgrouse("migrate")
    after = pgrouse("config", "check")
    file.write_text("")
    removed = pgrouse("migrate", "--json")

    added = "+ schedule nightly: 0 2 * * * (UTC), topic report"
    assert (before.code, before.out.splitlines()[0]) == (1, f"not in force: {added}")
    assert f"would change {added}" in planned.out
    assert added in applied.out.splitlines()
    assert after.code == 0
    assert removed.objects[-1]["changes"] == [
        {
            "schedule": "nightly",
            "action": "remove",
            "old": {"topic": "report", "declared_by": f"file {file}"},
            "new": {},
        }
    ]
    assert pgrouse("migrate").out == "the schema `messages` is up to date\n"
