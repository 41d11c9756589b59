"""Fixtures for the tests of environments: a database without a queue, and what the life of messages needs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from markupsafe import Markup

from tests.cli.shell import Shell
from tests.daemon.process import Fleet
from tests.environments.life import Life
from tests.server.postgres import Database


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Shell:
    """`shell("config", "show")` runs a command in an empty directory; no database is named."""
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith(("PG", "DATABASE_URL")):
            monkeypatch.delenv(name)
    return Shell(monkeypatch, capsys)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """The daemons of this test; all are killed at its end."""
    fleet = Fleet(tmp_path)
    yield fleet
    fleet.kill()


@pytest.fixture
def life_in(shell: Shell, fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Database], Life]:
    """`life_in(database)` prepares the life of messages there; commands are about that database from this call on."""

    def begin(database: Database) -> Life:
        monkeypatch.setenv("PGROUSE_DSN", database.dsn)
        # The drawings of the report depend on numbers only, and take longer than to read them.
        for where in ("chart", "svg"):
            monkeypatch.setattr(f"pyspark_pgrouse.report.html.{where}.drawing", lambda *_: Markup())
        return Life(database, shell, fleet, tmp_path)

    return begin
