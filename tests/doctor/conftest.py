"""What the tests of the doctor begin with: one database, from which each test takes its changes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from pgrouse.config.config import Config
from pgrouse.doctor import Finding, examine, listener
from tests.server.postgres import Database, Postgres

Examine = Callable[..., list[Finding]]


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What can arrive arrives, however long the machine stands still."""
    monkeypatch.setattr(listener, "WAITS_S", (0.3, 1.0, 20.0))


@pytest.fixture(scope="module")
def database(server: Postgres) -> Iterator[Database]:
    """The database of these tests, and a schema that has been ticked. Each test leaves it as it was."""
    with server.new_database(template=server.migrated) as database:
        yield database


@pytest.fixture(scope="module")
def admin(database: Database) -> psycopg.Connection[Any]:
    """A connection of the superuser, to break things and to fix them."""
    return database.connect()


@pytest.fixture
def examined(database: Database) -> Examine:
    """`examined("clock", prepare=False)` looks at what it names, with these settings of the section database."""

    def look(
        *codes: str, within_s: float = 30, sections: dict[str, Any] | None = None, **settings: Any
    ) -> list[Finding]:
        given = {"database": {"dsn": database.dsn, **settings}, **(sections or {})}
        return examine(Config.model_validate(given), codes, within_s=within_s)

    return look
