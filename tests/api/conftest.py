"""Fixtures for the tests of the HTTP API: one server per module, and a client that may do everything."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.api.site import Site
from tests.server.postgres import Database, Postgres
from tests.sql.queue import Queue

# The timeout of httpx for an answer unless a test sets another: its default of 5 s is too short on a busy machine.
httpx._config.DEFAULT_TIMEOUT_CONFIG.read = 60


@pytest.fixture(scope="module")
def site_database(server: Postgres) -> Iterator[Database]:
    """A database for all tests of a module; each uses its own topics."""
    with server.new_database(template=server.migrated) as database:
        yield database


@pytest.fixture(scope="module")
def site(site_database: Database) -> Iterator[Site]:
    """A web server that has tokens: one that has none lets every request from this machine in."""
    site = Site(site_database)
    site.token("viewer")
    yield site
    site.stop()


@pytest.fixture(scope="module")
def all_roles(site: Site) -> str:
    """A token that may do everything."""
    return site.token("viewer", "publisher", "worker", "operator", name="root")


@pytest.fixture(scope="module")
def http(site: Site, all_roles: str) -> Iterator[httpx.Client]:
    """A client that may do everything."""
    with site.client(all_roles) as client:
        yield client


@pytest.fixture(scope="module")
def queue(site_database: Database) -> Queue:
    """The queue itself, to prepare and to check."""
    return Queue(site_database.connect())
