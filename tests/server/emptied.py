"""One database for many tests, emptied before each: twenty times cheaper than a new one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from typing import Any

import psycopg
import pytest
from psycopg import sql

from pgrouse.devdb.sessions import end_sessions
from tests.server.postgres import Database, Postgres, archive_day

TABLES = """
    SELECT relname FROM pg_class
    WHERE relnamespace = 'messages'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
      AND relname <> 'migration'
"""
# A rollback or an emptied table leaves their values.
SEQUENCES = "SELECT c.relname FROM pg_class AS c WHERE c.relnamespace = 'messages'::regnamespace AND c.relkind = 'S'"
PARTITIONS = (
    "SELECT relname FROM pg_class WHERE relispartition AND relkind = 'r' AND relnamespace = 'messages'::regnamespace"
)
# Deleted rows stay in the files, and each later statement would read them: nothing else vacuums these servers.
SWOLLEN = """
    SELECT c.relname FROM pg_class AS c
    WHERE c.relnamespace = 'messages'::regnamespace AND c.relkind = 'r' AND pg_relation_size(c.oid) > 2000000
"""
# What a statement leaves that changes more than messages: an object, a right, a setting, another version.
CATALOGS = (
    "messages.migration", "pg_attrdef", "pg_attribute", "pg_class", "pg_constraint",
    "pg_database WHERE datname = current_database()", "pg_db_role_setting", "pg_default_acl", "pg_event_trigger",
    "pg_extension", "pg_index", "pg_largeobject_metadata", "pg_namespace", "pg_policy", "pg_proc", "pg_rewrite",
    "pg_trigger", "pg_type",
)  # fmt: skip
ROWS = " UNION ALL ".join(
    f"SELECT count(*), count(*) FILTER (WHERE age(xmin) < age(%(made)s::text::xid)) FROM {each}" for each in CATALOGS
)


class EmptiedDatabase:
    """The schema as it is after its installation, in a database that is dropped at the end."""

    def __init__(self, server: Postgres) -> None:
        self._server = server
        self._ends = ExitStack()
        self._make()

    def empty(self) -> Database:
        """Return the database, without the rows and days that tests have left."""
        self._admin.execute(self._clean)
        for (table,) in self._admin.execute(SWOLLEN).fetchall():
            self._admin.execute(sql.SQL("VACUUM messages.{}").format(sql.Identifier(table)))
        self._restore_days()
        return Database(self._server, self._database.name)

    def renew(self) -> Database:
        """Return the database, empty; a new one, if a test has changed more than rows. Sessions of tests end."""
        if not self._is_as_made():
            self.close()
            self._make()
        return self.empty()

    def close(self) -> None:
        """Drop it."""
        self._ends.close()

    def _make(self) -> None:
        self._database = self._ends.enter_context(self._server.new_database(template=self._server.migrated))
        self._admin = self._ends.enter_context(self._server.admin(self._database.name))
        self._admin.execute("SET application_name = 'emptied'")
        self._clean = _cleaning(self._admin)
        self._days, self._today = self._partitions(), archive_day()
        [(self._made,)] = self._admin.execute("SELECT pg_current_xact_id()::text").fetchall()
        self._rows = self._catalog_rows()

    def _is_as_made(self) -> bool:
        with suppress(psycopg.Error):
            end_sessions(self._admin, self._database.name)
            return self._catalog_rows() == self._rows
        return False

    def _catalog_rows(self) -> list[Any]:
        """Return how many rows each catalog has, and how many of them are newer than the database."""
        return self._admin.execute(ROWS.encode(), {"made": self._made}).fetchall()

    def _partitions(self) -> set[str]:
        return {day for (day,) in self._admin.execute(PARTITIONS)}

    def _restore_days(self) -> None:
        if self._today != (today := archive_day()):
            self._today = today
            self._admin.execute("SELECT messages.maintain_partitions()")
            self._days = {day for day in self._partitions() if day >= f"message_archive_{today:%Y%m%d}"}
        now = self._partitions()
        for day in now - self._days:
            self._admin.execute(sql.SQL("DROP TABLE messages.{}").format(sql.Identifier(day)))
        if self._days - now:
            self._admin.execute("SELECT messages.maintain_partitions()")


@pytest.fixture(scope="session")
def emptied(server: Postgres) -> Iterator[EmptiedDatabase]:
    """The database of all tests of the folders that take it."""
    with closing(EmptiedDatabase(server)) as emptied:
        yield emptied


@pytest.fixture
def database(emptied: EmptiedDatabase) -> Iterator[Database]:
    """A database with the schema as it is after its installation, for folders whose tests need no new one."""
    database = emptied.renew()
    yield database
    database.disconnect()


def _cleaning(admin: psycopg.Connection[Any]) -> bytes:
    """Return the statements that bring rows and sequences back to what they are now.

    The rows are kept in temporary tables of this connection.
    """
    tables = [name for (name,) in admin.execute(TABLES)]
    filled = [name for name in tables if admin.execute(_for("TABLE messages.{} LIMIT 1", name)).rowcount]
    for name in filled:
        admin.execute(_for("CREATE TEMP TABLE {0} AS TABLE messages.{0}", name))
    # No trigger: it would notify, and refuse to delete the row of the defaults.
    admin.execute("SET session_replication_role = replica")
    refill = "INSERT INTO messages.{0} OVERRIDING SYSTEM VALUE TABLE pg_temp.{0};"
    return (
        sql.SQL("")
        .join(
            [_for("DELETE FROM messages.{};", name) for name in tables]
            + [_for(refill, name) for name in filled]
            + [_reset(admin, name) for (name,) in admin.execute(SEQUENCES).fetchall()]
        )
        .as_bytes(admin)
    )


def _for(statement: str, name: str) -> sql.Composed:
    return sql.SQL(statement).format(sql.Identifier(name))


def _reset(admin: psycopg.Connection[Any], sequence: str) -> sql.Composed:
    """Return the statement that gives a sequence the value that it has now."""
    name = sql.Identifier("messages", sequence)
    last, called = admin.execute(sql.SQL("SELECT last_value, is_called FROM {}").format(name)).fetchall()[0]
    return sql.SQL("SELECT setval({}, {}, {});").format(f"messages.{sequence}", last, called)
