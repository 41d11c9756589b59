"""Fixtures for pytest: a database for each test, a worker, and the published messages.

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

    from pgrouse.testing import DatabaseTemplate, DatabaseUrl
    from pgrouse.worker.worker import Worker

    StartWorker = Callable[..., Worker]
    Published = Callable[..., list[dict[str, Any]]]

# Where a test keeps the database that is its own.
OWN: pytest.StashKey[str] = pytest.StashKey()


@pytest.fixture(scope="session")
def pgrouse_template() -> Iterator[DatabaseTemplate]:
    """The database that those of the tests are copies of: it has the schema of pgrouse.

    Override it to create the tables of the application in `pgrouse_template.dsn`, and return it.

    It is on the server of $PGROUSE_TEST_DSN, or on one of this machine (see `pgrouse.testing.template`).
    """
    from pgrouse import testing  # noqa: PLC0415 - slow to import: most tests need none of it

    with testing.template() as made:
        yield made


@pytest.fixture
def pgrouse_database(pgrouse_template: DatabaseTemplate, request: pytest.FixtureRequest) -> Iterator[DatabaseUrl]:
    """A database of this test alone: its URL; `.url("postgresql+asyncpg")` for SQLAlchemy.

    It is a copy of `pgrouse_template`, and is dropped after the test.
    """
    with pgrouse_template.copy() as url:
        request.node.stash[OWN] = url
        yield url


@pytest.fixture(scope="session")
def pgrouse_session_database(pgrouse_template: DatabaseTemplate) -> Iterator[DatabaseUrl]:
    """A database for the whole session, a copy of `pgrouse_template`: for applications that live longer than a test.

    Let `pgrouse_database` return it, and the other fixtures use it too.
    """
    with pgrouse_template.copy() as url:
        yield url


@pytest.fixture
def pgrouse_worker(pgrouse_database: DatabaseUrl, _emptied_queue: None) -> Iterator[StartWorker]:
    """Start a worker for the test; it ends with the test.

    Call it as `pgrouse_worker("pgrouse.toml")` or `pgrouse_worker(handlers={...})`.

    It uses `pgrouse_database`, and runs in a separate thread.
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

    Messages that have ended since are included.
    """
    import psycopg  # noqa: PLC0415 - slow to import: most tests need none of it

    from pgrouse import testing  # noqa: PLC0415 - slow to import: most tests need none of it

    with psycopg.connect(pgrouse_database, autocommit=True, client_encoding="utf8") as conn:

        def of_topic(topic: str | None = None) -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = testing.published(conn, topic)
            return found

        yield of_topic


@pytest.fixture
def _emptied_queue(pgrouse_database: DatabaseUrl, request: pytest.FixtureRequest) -> Iterator[None]:
    """Remove the messages after the test from a database that other tests use too.

    Policies and schedules stay: a worker may run that lives longer than this test.
    """
    yield
    if request.node.stash.get(OWN, None) == pgrouse_database:
        return
    import psycopg  # noqa: PLC0415 - slow to import: most tests need none of it

    from pgrouse import testing  # noqa: PLC0415 - slow to import: most tests need none of it

    with psycopg.connect(pgrouse_database, autocommit=True, client_encoding="utf8") as conn:
        testing.clean(conn, messages_only=True)
