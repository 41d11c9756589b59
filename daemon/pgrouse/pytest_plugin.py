"""Fixtures for pytest: a database, a worker, and the published messages.

pytest loads this module in every environment that has pgrouse, so it imports nothing of pgrouse before a fixture is
used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from pgrouse.testing import DatabaseUrl
    from pgrouse.worker.worker import Worker

    StartWorker = Callable[..., Worker]
    Published = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="session")
def pgrouse_database() -> Iterator[DatabaseUrl]:
    """A database with the schema, for the whole session: its URL; `.url("postgresql+asyncpg")` for SQLAlchemy.

    It is on the server of $PGROUSE_TEST_DSN, or on one of this machine (see `pgrouse.testing.database`).
    """
    from pgrouse.testing import database  # noqa: PLC0415 - slow to import: most tests need none of it

    with database() as url:
        yield url


@pytest.fixture
def pgrouse_worker(pgrouse_database: DatabaseUrl, _emptied_queue: None) -> Iterator[StartWorker]:
    """Start a worker for the test; it ends with the test.

    Call it as `pgrouse_worker("pgrouse.toml")` or `pgrouse_worker(handlers={...})`.

    It uses `pgrouse_database`, and runs in a separate thread. The queue is emptied after the test.
    """
    from pgrouse.worker.worker import Worker  # noqa: PLC0415 - slow to import: most tests need none of it

    def start(
        file: Path | str | None = None, *, handlers: Mapping[str, Callable[..., Any]] | None = None, **options: Any
    ) -> Worker:
        return stack.enter_context(Worker(file or pgrouse_database, dsn=pgrouse_database, handlers=handlers, **options))

    with ExitStack() as stack:
        yield start


@pytest.fixture
def published(pgrouse_database: DatabaseUrl, _emptied_queue: None) -> Iterator[Published]:
    """Return the messages that the test has published and committed.

    `published("orders.created")` returns those of one topic, `published()` those of all.

    Messages that have ended since are included. The queue is emptied after the test.
    """
    import psycopg  # noqa: PLC0415 - slow to import: most tests need none of it

    from pgrouse import testing  # noqa: PLC0415 - slow to import: most tests need none of it

    with psycopg.connect(pgrouse_database, autocommit=True) as conn:

        def of_topic(topic: str | None = None) -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = testing.published(conn, topic)
            return found

        yield of_topic


@pytest.fixture
def _emptied_queue(pgrouse_database: DatabaseUrl) -> Iterator[None]:
    """Empty the queue after the test, when its workers have stopped."""
    yield
    import psycopg  # noqa: PLC0415 - slow to import: most tests need none of it

    from pgrouse.testing import clean  # noqa: PLC0415 - slow to import: most tests need none of it

    with psycopg.connect(pgrouse_database, autocommit=True) as conn:
        clean(conn)
