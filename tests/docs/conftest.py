"""Fixtures for the tests of the documentation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.docs.page import Page
from tests.docs.psql import Psql
from tests.server.postgres import Database

RunPage = Callable[[Page, int], dict[str, Any]]


@pytest.fixture
def psql(db: psycopg.Connection[Any]) -> Psql:
    """A session of the superuser in a new database, in which the claim ids are those of the pages."""
    db.execute("SELECT setseed(0.5)")
    return Psql(db)


@pytest.fixture
def run_page(database: Database, monkeypatch: pytest.MonkeyPatch) -> RunPage:
    """Run the blocks of a page as one program, as they stand, and return what it defines; there must be this many."""
    monkeypatch.setenv("PGROUSE_DSN", database.dsn)

    def run(page: Page, count: int) -> dict[str, Any]:
        names: dict[str, Any] = {"__name__": "example"}
        blocks = [block for block in page.blocks if block.kind.startswith("python runnable")]
        for block in blocks:
            # Lines as in the page, so that a traceback points into it.
            exec(compile("\n" * block.line + block.text, page.path, "exec"), names)
        assert len(blocks) == count
        return names

    return run
