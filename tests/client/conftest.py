"""What several tests of clients need."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from pgrouse.client.waiting import waiting
from tests.server.emptied import database, emptied
from tests.server.postgres import Database

__all__ = ["database", "emptied"]


@pytest.fixture
def conn(database: Database) -> Iterator[psycopg.Connection[Any]]:
    """A caller's connection: not in autocommit mode, with only the rights of a publisher."""
    with psycopg.connect(database.dsn) as conn:
        conn.execute("SET ROLE messages_publisher")
        conn.commit()
        yield conn


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(10) as threads:
        yield threads


@pytest.fixture
def only_notifications(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait without a notification would outlast its test."""
    monkeypatch.setattr(waiting, "CHECK_EVERY_S", 600.0)
