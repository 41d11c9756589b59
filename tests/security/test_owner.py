"""The owner of the schema gets no rights of the superuser who migrates it: the owner's code runs with the rights of the one that touches it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from psycopg import sql

from pgrouse.errors import SchemaMismatch
from pgrouse.install import schema
from tests.server.postgres import Database

pytestmark = pytest.mark.every_server

# SET ROLE is undone by whatever runs under it: a trigger, a view, a default.
RISE = """
    CREATE FUNCTION messages.rise() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN
      EXECUTE 'RESET ROLE';
      EXECUTE 'ALTER ROLE {0} SUPERUSER';
      EXECUTE 'SET LOCAL ROLE {0}';
      RETURN NULL;
    END $$
"""
LEDGER = """
    CREATE TABLE messages.migration (
      kind text NOT NULL, name text NOT NULL, digest text NOT NULL, version text NOT NULL,
      applied_at timestamptz NOT NULL DEFAULT clock_timestamp(), applied_by text NOT NULL DEFAULT session_user,
      PRIMARY KEY (kind, name))
"""
TRIGGER = """
    CREATE TRIGGER rise AFTER INSERT OR UPDATE ON messages.migration
    FOR EACH STATEMENT EXECUTE FUNCTION messages.rise()
"""


@pytest.fixture
def admin(empty_database: Database) -> psycopg.Connection[Any]:
    return empty_database.connect()


@pytest.fixture
def mallory(admin: psycopg.Connection[Any]) -> Iterator[str]:
    """A role that may create schemas in the database, and nothing else."""
    name = f"mallory_{os.getpid()}"
    role = sql.Identifier(name)
    admin.execute(sql.SQL("CREATE ROLE {}").format(role))
    try:
        admin.execute(sql.SQL("GRANT CREATE ON DATABASE {} TO {}").format(sql.Identifier(admin.info.dbname), role))
        yield name
    finally:
        admin.execute("RESET ROLE")
        admin.execute(sql.SQL("DROP OWNED BY {} CASCADE; DROP ROLE {}").format(role, role))


def is_superuser(conn: psycopg.Connection[Any], name: str) -> bool:
    return conn.execute("SELECT FROM pg_roles AS r WHERE r.rolname = %s AND r.rolsuper", [name]).rowcount > 0


def act(admin: psycopg.Connection[Any], name: str, *statements: str) -> None:
    admin.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(name)))
    for each in statements:
        admin.execute(each.format(name).encode())
    admin.execute("RESET ROLE")


def test_the_first_creator_of_the_schema_does_not_become_superuser_when_a_superuser_migrates(
    admin: psycopg.Connection[Any], mallory: str
) -> None:
    act(admin, mallory, "CREATE SCHEMA messages", LEDGER, RISE, TRIGGER)

    with suppress(SchemaMismatch):
        schema.migrate(admin)

    assert not is_superuser(admin, mallory)


def test_a_role_that_creates_the_schema_during_a_migration_does_not_become_superuser(
    admin: psycopg.Connection[Any], mallory: str, empty_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def script(path: str, read: Callable[[str], bytes] = schema.script) -> bytes:
        if path == "ledger.sql":
            other = empty_database.connect()
            act(other, mallory, "CREATE SCHEMA messages", LEDGER, RISE, TRIGGER)
            act(other, mallory, "GRANT ALL ON SCHEMA messages TO PUBLIC", "GRANT ALL ON messages.migration TO PUBLIC")
            other.close()
        return read(path)

    monkeypatch.setattr(schema, "script", script)

    with suppress(SchemaMismatch):
        schema.migrate(admin)

    assert not is_superuser(admin, mallory)


def test_a_member_of_messages_owner_does_not_become_superuser_when_a_superuser_migrates(
    admin: psycopg.Connection[Any], mallory: str
) -> None:
    schema.migrate(admin)
    admin.execute(sql.SQL("GRANT messages_owner TO {}").format(sql.Identifier(mallory)))
    act(admin, mallory, "SET LOCAL ROLE messages_owner;" + RISE + ";" + TRIGGER)
    act(admin, mallory, "SET LOCAL ROLE messages_owner; DELETE FROM messages.migration WHERE name = 'state'")
    assert admin.execute("SELECT FROM messages.migration WHERE name = 'state'").rowcount == 0

    with suppress(SchemaMismatch):
        schema.migrate(admin)

    assert not is_superuser(admin, mallory)


def test_the_refusal_names_a_role_that_can_migrate(admin: psycopg.Connection[Any], mallory: str) -> None:
    admin.execute(sql.SQL("SET SESSION AUTHORIZATION {}").format(sql.Identifier(mallory)))
    made = schema.migrate(admin)
    admin.execute("RESET SESSION AUTHORIZATION")

    with pytest.raises(SchemaMismatch, match=f"Run `pgrouse migrate` as {mallory}"):
        schema.migrate(admin)

    assert len(made) > 300
    assert admin.execute("SELECT session_user::text, current_user::text").fetchone() == ("postgres", "postgres")
