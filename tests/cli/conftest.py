"""Fixtures for the tests of the command line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from psycopg import sql

from tests.cli.shell import Shell
from tests.server.emptied import database, emptied
from tests.server.postgres import Database, Postgres

__all__ = ["database", "emptied"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, and an environment that names no database."""
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith(("PG", "DATABASE_URL")):
            monkeypatch.delenv(name)
    return tmp_path


@pytest.fixture
def shell(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shell:
    """`shell("config", "show")` runs a command in that directory; no database is named."""
    return Shell(monkeypatch, capsys)


@pytest.fixture
def pgrouse(shell: Shell, database: Database, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """`pgrouse("stats")` runs a command on the test's database."""
    monkeypatch.setenv("PGROUSE_DSN", database.dsn)
    return shell


@pytest.fixture
def acting_as(database: Database, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`acting_as("messages_analyst")`: from this call on commands have only the rights of that role."""

    def act(role: str) -> None:
        monkeypatch.setenv("PGROUSE_DSN", f"{database.dsn} options='-c role={role}'")

    return act


@pytest.fixture
def user_without_rights(server: Postgres) -> Iterator[str]:
    """A user who may log in and has no rights."""
    with server.admin() as admin:
        admin.execute("DROP ROLE IF EXISTS cli_user_without_rights")
        admin.execute(
            sql.SQL("CREATE ROLE cli_user_without_rights LOGIN PASSWORD {}").format(admin.info.password or None)
        )
        yield "cli_user_without_rights"
        admin.execute("DROP ROLE cli_user_without_rights")
