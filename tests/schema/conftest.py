"""Databases without the schema, and files of the schema that may be edited."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgrouse.database.install import schema
from tests.daemon.process import Fleet
from tests.schema import second_version
from tests.server.postgres import Database, Postgres


@pytest.fixture
def conn(empty_database: Database) -> psycopg.Connection[Any]:
    """An autocommit connection of the superuser to an empty database."""
    return empty_database.connect()


@pytest.fixture
def installed(database: Database) -> psycopg.Connection[Any]:
    """An autocommit connection of the superuser to a database with the schema of this version.

    `migrate` has installed it.
    """
    return database.connect()


@pytest.fixture
def sql_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of sql/ that the migrator reads instead, to be edited."""
    copy = tmp_path / "sql"
    shutil.copytree(str(schema.sql_root()), copy)
    monkeypatch.setattr(schema, "sql_root", lambda: copy)
    return copy


@pytest.fixture
def plain_owner(server: Postgres, empty_database: Database) -> Iterator[psycopg.Connection[Any]]:
    """A connection as the owner of the database, who is not a superuser and may create no roles."""
    with server.admin() as admin:
        admin.execute('CREATE ROLE "plain Owner"')
        admin.execute(f'ALTER DATABASE {empty_database.name} OWNER TO "plain Owner"')
        conn = empty_database.connect()
        conn.execute('SET SESSION AUTHORIZATION "plain Owner"')
        yield conn
        conn.execute("RESET SESSION AUTHORIZATION")
        conn.execute('REASSIGN OWNED BY "plain Owner" TO postgres')
        admin.execute(f"ALTER DATABASE {empty_database.name} OWNER TO postgres")
        admin.execute('DROP ROLE "plain Owner"')


@pytest.fixture
def upgrade(sql_copy: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """`upgrade()`: from now on the migrator is that of the second version."""
    return lambda: second_version.write(sql_copy, monkeypatch)


@pytest.fixture
def fleet(tmp_path: Path, database: Database) -> Iterator[Fleet]:
    """The daemons of this test; all are killed at its end, before their database is dropped."""
    (tmp_path / "fleet").mkdir()
    fleet = Fleet(tmp_path / "fleet")
    yield fleet
    fleet.kill()
