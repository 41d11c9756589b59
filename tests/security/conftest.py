"""Databases full of traps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache

import pytest

from tests.security import traps
from tests.server.postgres import Database, Postgres


@pytest.fixture(scope="session")
def new_trapped(server: Postgres) -> Iterator[Callable[..., AbstractContextManager[Database]]]:
    """`new_trapped(template)` makes a database with traps in each session: a copy, since to set them takes seconds."""
    with ExitStack() as stack:

        @cache
        def trapped(template: str | None) -> str:
            database = stack.enter_context(server.new_database(template))
            with server.admin(database.name) as admin:
                traps.plant(admin)
            return database.name

        @contextmanager
        def new(template: str | None = None) -> Iterator[Database]:
            with server.new_database(trapped(template)) as database:
                with server.admin() as admin:
                    traps.set_path(admin, database.name)
                yield database

        yield new
