"""Fixtures for the tests of the doctor: one database, in which each test undoes its changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from pgrouse.config.config import Config
from pgrouse.doctor import Finding, examine, listener
from tests.server.postgres import Database

Examine = Callable[..., list[Finding]]


@pytest.fixture
def long_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """A timeout that lets every notification arrive, however long the machine pauses."""
    monkeypatch.setattr(listener, "WAITS_S", (0.3, 1.0, 20.0))


@pytest.fixture(scope="module")
def database(shared: Database) -> Database:
    """The database of these tests, and a schema with a recent tick. Each test leaves it unchanged."""
    return shared


@pytest.fixture(scope="module")
def admin(database: Database) -> psycopg.Connection[Any]:
    """A connection of the superuser, to break things and to fix them."""
    return database.connect()


@pytest.fixture
def examined(database: Database) -> Examine:
    """`examined("clock", prepare=False)` runs the named checks, with these settings of the section database."""

    def run_checks(
        *codes: str, within_s: float = 30, sections: dict[str, Any] | None = None, **settings: Any
    ) -> list[Finding]:
        given = {"database": {"dsn": database.dsn, **settings}, **(sections or {})}
        return examine(Config.model_validate(given), codes, within_s=within_s)

    return run_checks
