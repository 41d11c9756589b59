"""The owner of the schema gets no rights of the superuser who migrates it.

The owner's code runs with the rights of the one that touches it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from pgrouse.database.install import pg_cron, schema
from pgrouse.database.install.pg_cron import CronUnavailable
from pgrouse.errors import SchemaMismatch
from tests.security.psql import PSQLRC, needs_psql, run
from tests.server.postgres import Database, Postgres

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
def admin(server: Postgres, request: pytest.FixtureRequest) -> psycopg.Connection[Any]:
    """A connection of a superuser to an empty database, or to one with the schema for a test marked `with_schema`."""
    database: Database = request.getfixturevalue(getattr(request, "param", "empty_database"))
    return database.connect()


with_schema = pytest.mark.parametrize("admin", ["database"], indirect=True)


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


@with_schema
def test_a_member_of_messages_owner_does_not_become_superuser_when_a_superuser_migrates(
    admin: psycopg.Connection[Any], mallory: str
) -> None:
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


# The functions of pgmq, an optional step

PGMQ = """
    CREATE SCHEMA pgmq; GRANT ALL ON SCHEMA pgmq TO PUBLIC;
    CREATE TABLE pgmq.meta (
      queue_name text COLLATE "C" PRIMARY KEY, is_partitioned boolean NOT NULL DEFAULT false,
      is_unlogged boolean NOT NULL DEFAULT false,
      created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
      notify_ms integer, notified_at timestamptz NOT NULL DEFAULT to_timestamp(0));
    GRANT ALL ON pgmq.meta TO PUBLIC;
    CREATE FUNCTION pgmq.spy() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN GRANT SELECT ON messages.message TO {0}; GRANT USAGE ON SCHEMA messages TO {0}; RETURN NEW; END $$;
    GRANT EXECUTE ON FUNCTION pgmq.spy TO PUBLIC;
    CREATE TRIGGER spy BEFORE INSERT ON pgmq.meta FOR EACH ROW EXECUTE FUNCTION pgmq.spy();
"""


def install_pgmq(conn: psycopg.Connection[Any]) -> None:
    conn.execute(schema.script("pgmq.sql"))


@with_schema
def test_the_first_creator_of_the_schema_pgmq_gets_no_code_run_by_the_owner(
    admin: psycopg.Connection[Any], mallory: str
) -> None:
    act(admin, mallory, PGMQ)

    with pytest.raises(psycopg.errors.RaiseException, match=f"is owned by {mallory}, and not by messages_owner"):
        install_pgmq(admin)
    admin.execute("ROLLBACK")

    assert admin.execute("SELECT to_regproc('pgmq.send_batch')").fetchone() == (None,)


@with_schema
@needs_psql
def test_psql_that_continues_after_errors_installs_nothing_into_the_schema_of_another(
    admin: psycopg.Connection[Any], mallory: str, database: Database, tmp_path: Path
) -> None:
    act(admin, mallory, PGMQ)
    (tmp_path / ".psqlrc").write_text(PSQLRC)

    said = run("sql/pgmq.sql", database, tmp_path)

    assert f"is owned by {mallory}" in said
    assert admin.execute("SELECT count(*) FROM pg_proc WHERE pronamespace = 'pgmq'::regnamespace").fetchone() == (1,)


@with_schema
@pytest.mark.parametrize(
    "planted",
    [
        "CREATE TABLE pgmq.meta (queue_name text)",
        "CREATE VIEW pgmq.topic_bindings AS SELECT 1 AS one",
        "CREATE TYPE pgmq.message_record AS (msg_id bigint)",
        "CREATE FUNCTION pgmq.after(seconds integer) RETURNS timestamptz LANGUAGE sql AS 'SELECT now()'",
    ],
)
def test_what_another_role_has_put_into_the_schema_pgmq_is_refused(
    admin: psycopg.Connection[Any], mallory: str, planted: str
) -> None:
    admin.execute("CREATE SCHEMA pgmq AUTHORIZATION messages_owner; GRANT CREATE, USAGE ON SCHEMA pgmq TO PUBLIC")
    act(admin, mallory, planted)

    with pytest.raises(psycopg.errors.RaiseException, match=f"is owned by {mallory}"):
        install_pgmq(admin)
    admin.execute("ROLLBACK")


@with_schema
def test_the_functions_of_pgmq_are_installed_again_over_themselves(admin: psycopg.Connection[Any]) -> None:
    install_pgmq(admin)
    install_pgmq(admin)

    assert admin.execute("SELECT current_user::text").fetchone() == ("postgres",)
    owners = "SELECT DISTINCT p.proowner::regrole::text FROM pg_proc AS p WHERE p.pronamespace = 'pgmq'::regnamespace"
    assert admin.execute(owners.encode()).fetchall() == [("messages_owner",)]


# The jobs of pg_cron

CRON = """
    CREATE SCHEMA cron; GRANT ALL ON SCHEMA cron TO PUBLIC;
    CREATE FUNCTION cron.schedule_in_database(text, text, text, name, text) RETURNS bigint LANGUAGE plpgsql AS
    $$ BEGIN ALTER ROLE {0} SUPERUSER; RETURN 1; END $$;
    CREATE TABLE cron.job_run_details (runid bigint, command text, start_time timestamptz);
    INSERT INTO cron.job_run_details VALUES (1, '/* pgrouse */', '2000-01-01');
    GRANT ALL ON cron.job_run_details TO PUBLIC;
    CREATE FUNCTION cron.rise() RETURNS trigger LANGUAGE plpgsql
    AS $$ BEGIN ALTER ROLE {0} SUPERUSER; RETURN OLD; END $$;
    CREATE TRIGGER rise BEFORE DELETE ON cron.job_run_details FOR EACH ROW EXECUTE FUNCTION cron.rise();
"""


@with_schema
@needs_psql
def test_the_first_creator_of_the_schema_cron_does_not_become_superuser(
    admin: psycopg.Connection[Any], mallory: str, database: Database, tmp_path: Path
) -> None:
    act(admin, mallory, CRON)

    with suppress(CronUnavailable, psycopg.Error):
        pg_cron.install(admin)
    pruned = admin.execute("SELECT messages.prune_cron_history()").fetchone()
    said = run("docker/postgres/install-cron.sh", database, tmp_path)

    # Its jobs are in another database, if there is one with pg_cron, where they would outlive this one.
    with suppress(CronUnavailable, psycopg.Error):
        pg_cron.remove(admin)

    assert "has no extension pg_cron" in said
    assert pruned == (0,)
    assert not is_superuser(admin, mallory)
