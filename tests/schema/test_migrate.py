"""The migrator: installs the schema, brings it up to date, and knows when it is not the one that this version works with."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from threading import Barrier
from typing import Any

import psycopg
import pytest
from psycopg import errors, sql

from pgrouse import schema
from pgrouse.errors import MigrationEdited, SchemaMismatch
from tests.server.postgres import Database, Postgres

# Everything that a migration could change: each object with what defines it.
OBJECTS = """
    SELECT 'relation', c.oid::regclass::text, c.relkind::text || coalesce(pg_get_viewdef(c.oid), '')
    FROM pg_class AS c WHERE c.relnamespace = 'messages'::regnamespace
    UNION ALL
    SELECT 'column', a.attrelid::regclass || '.' || a.attname, format_type(a.atttypid, a.atttypmod) || a.attnotnull
    FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid
    WHERE c.relnamespace = 'messages'::regnamespace AND a.attnum > 0
    UNION ALL
    SELECT 'function', p.oid::regprocedure::text, pg_get_functiondef(p.oid)
    FROM pg_proc AS p WHERE p.pronamespace = 'messages'::regnamespace
    UNION ALL
    SELECT 'constraint', o.conrelid::regclass || '.' || o.conname, pg_get_constraintdef(o.oid)
    FROM pg_constraint AS o WHERE o.connamespace = 'messages'::regnamespace
    UNION ALL
    SELECT 'trigger', t.tgrelid::regclass || '.' || t.tgname, pg_get_triggerdef(t.oid)
    FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid WHERE c.relnamespace = 'messages'::regnamespace AND NOT t.tgisinternal
    UNION ALL
    SELECT 'grant', c.oid::regclass::text, coalesce(c.relacl::text, '') FROM pg_class AS c WHERE c.relnamespace = 'messages'::regnamespace
    UNION ALL
    SELECT 'grant', p.oid::regprocedure::text, coalesce(p.proacl::text, '') FROM pg_proc AS p WHERE p.pronamespace = 'messages'::regnamespace
"""


def objects(conn: psycopg.Connection[Any]) -> set[Any]:
    return set(conn.execute(OBJECTS).fetchall())


def has_schema(conn: psycopg.Connection[Any]) -> bool:
    return conn.execute("SELECT to_regnamespace('messages') IS NOT NULL").fetchone() == (True,)


def every_script() -> list[str]:
    return [each.name for each in schema.scripts()]


def works(conn: psycopg.Connection[Any]) -> bool:
    """Whether a message goes its whole way."""
    conn.execute("INSERT INTO messages.message (topic, payload) VALUES ('t', '1')")
    held = conn.execute("SELECT id, claim_id FROM messages.claim('w', ARRAY['t'], 1)").fetchall()
    lost = conn.execute("SELECT messages.complete(%s, %s)", [[i for i, _ in held], [c for _, c in held]]).fetchone()
    return len(held) == 1 and lost == ([],)


@pytest.fixture
def conn(empty_database: Database) -> psycopg.Connection[Any]:
    """An autocommit connection of the superuser to an empty database."""
    return empty_database.connect()


@pytest.fixture
def sql_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of sql/ that the migrator reads instead, to be edited."""
    copy = tmp_path / "sql"
    shutil.copytree(str(schema.sql_root()), copy)
    monkeypatch.setattr(schema, "sql_root", lambda: copy)
    return copy


def test_a_fresh_installation_applies_every_script_and_works(conn: psycopg.Connection[Any]) -> None:
    applied = schema.migrate(conn)

    assert applied == every_script()
    assert works(conn)
    schema.check(conn)


def test_migrations_come_first_and_in_their_order(conn: psycopg.Connection[Any]) -> None:
    applied = schema.migrate(conn)

    migrations = [name for name in applied if name.startswith("migrations/")]
    assert migrations == sorted(migrations) == applied[: len(migrations)]


def test_a_second_run_applies_nothing_and_changes_nothing(conn: psycopg.Connection[Any]) -> None:
    schema.migrate(conn)
    before = objects(conn)

    assert schema.migrate(conn) == []
    assert objects(conn) == before


def test_the_ledger_knows_what_was_applied_by_whom(conn: psycopg.Connection[Any]) -> None:
    schema.migrate(conn)

    rows = conn.execute(
        "SELECT kind, name, digest, version, applied_by FROM messages.migration ORDER BY name"
    ).fetchall()

    assert [row[:3] for row in rows] == sorted(
        ((s.kind, s.name, s.digest) for s in schema.scripts()), key=lambda row: row[1]
    )
    assert {row[3:] for row in rows} == {(version("pgrouse"), "postgres")}


def test_a_dry_run_tells_what_would_be_applied_and_changes_nothing(conn: psycopg.Connection[Any]) -> None:
    assert schema.migrate(conn, dry_run=True) == every_script()

    assert not has_schema(conn)


def test_a_dry_run_of_an_upgrade_changes_nothing_either(conn: psycopg.Connection[Any], sql_copy: Path) -> None:
    schema.migrate(conn)
    before = objects(conn)
    (sql_copy / "migrations/9999_colour.sql").write_text("ALTER TABLE messages.message ADD COLUMN colour text")

    assert schema.migrate(conn, dry_run=True) == ["migrations/9999_colour.sql"]

    assert objects(conn) == before


def test_an_upgrade_applies_what_is_new_and_nothing_else(conn: psycopg.Connection[Any], sql_copy: Path) -> None:
    schema.migrate(conn)
    conn.execute("INSERT INTO messages.message (topic, payload) VALUES ('kept', '1')")
    (sql_copy / "migrations/9999_colour.sql").write_text("ALTER TABLE messages.message ADD COLUMN colour text")
    (sql_copy / "functions/colour.sql").write_text(
        "CREATE FUNCTION messages.colour() RETURNS text LANGUAGE sql AS $$ SELECT 'red' $$"
    )

    assert schema.migrate(conn) == ["migrations/9999_colour.sql", "functions/colour.sql"]

    assert conn.execute("SELECT topic, colour FROM messages.message").fetchall() == [("kept", None)]
    assert works(conn)


def test_a_changed_function_is_replaced(conn: psycopg.Connection[Any], sql_copy: Path) -> None:
    schema.migrate(conn)
    changed = sql_copy / "functions/own_xid.sql"
    changed.write_text(
        changed.read_text().replace("pg_catalog.pg_current_xact_id()::pg_catalog.text::bigint", "42::bigint")
    )

    assert schema.migrate(conn) == ["functions/own_xid.sql"]
    assert conn.execute("SELECT messages.own_xid()").fetchone() == (42,)
    assert schema.migrate(conn) == []


def test_a_new_function_is_closed_to_public(conn: psycopg.Connection[Any], sql_copy: Path) -> None:
    schema.migrate(conn)
    (sql_copy / "functions/colour.sql").write_text(
        "CREATE FUNCTION messages.colour() RETURNS text LANGUAGE sql AS $$ SELECT 'red' $$"
    )

    schema.migrate(conn)

    assert conn.execute("SELECT has_function_privilege('public', 'messages.colour()', 'EXECUTE')").fetchone() == (
        False,
    )


def test_an_edited_migration_is_refused_with_the_mend_and_changes_nothing(
    conn: psycopg.Connection[Any], sql_copy: Path
) -> None:
    schema.migrate(conn)
    before = objects(conn)
    edited = sql_copy / "migrations/0001_message.sql"
    edited.write_text(edited.read_text() + "-- one more comment\n")

    with pytest.raises(MigrationEdited) as caught:
        schema.migrate(conn)

    assert str(caught.value) == (
        "migrations/0001_message.sql was edited after it was applied: restore its text and put the change into a new migration"
    )
    assert objects(conn) == before


def test_a_migration_that_fails_takes_everything_back(conn: psycopg.Connection[Any], sql_copy: Path) -> None:
    (sql_copy / "migrations/9999_broken.sql").write_text("CREATE TABLE messages.colour (); SELECT no_such_function()")

    with pytest.raises(errors.UndefinedFunction):
        schema.migrate(conn)

    assert not has_schema(conn)


def test_an_upgrade_that_fails_leaves_the_schema_as_it_was(conn: psycopg.Connection[Any], sql_copy: Path) -> None:
    schema.migrate(conn)
    before = objects(conn)
    (sql_copy / "migrations/9999_broken.sql").write_text(
        "ALTER TABLE messages.message ADD COLUMN colour text; SELECT 1 / 0"
    )

    with pytest.raises(errors.DivisionByZero):
        schema.migrate(conn)

    assert objects(conn) == before
    assert works(conn)


def test_policies_of_before_hold_from_the_moment_of_the_upgrade(conn: psycopg.Connection[Any]) -> None:
    """Not from the next tick on: the marks by topic are newer than the policies, and made without them."""
    schema.migrate(conn)
    conn.execute("INSERT INTO messages.topic (topic, max_payload_bytes) VALUES ('small', 10)")
    conn.execute("SELECT setval('messages.policed_topics', 1)")
    conn.execute("DELETE FROM messages.migration WHERE name = 'migrations/0028_policed.sql'")

    schema.migrate(conn)

    with pytest.raises(errors.Error, match="small"):
        conn.execute("""INSERT INTO messages.message (topic, payload) VALUES ('small', '"0123456789012345"')""")


def test_a_fresh_installation_looks_up_no_policies(conn: psycopg.Connection[Any]) -> None:
    schema.migrate(conn)

    assert conn.execute("SELECT pg_sequence_last_value('messages.policed_topics')").fetchone() == (1,)


@pytest.fixture
def before_workflows(conn: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    """A connection to a database whose messages.publish is that from before messages came after others."""
    schema.migrate(conn)
    conn.execute("DROP TABLE messages.parked, messages.edge, messages.ending, messages.step CASCADE")
    conn.execute("DROP SEQUENCE messages.step_place")
    conn.execute("DROP FUNCTION messages.publish")
    conn.execute(
        """
        CREATE FUNCTION messages.publish(
          text, jsonb DEFAULT NULL, text DEFAULT NULL, text DEFAULT 'error', bytea DEFAULT NULL, jsonb DEFAULT NULL, text DEFAULT NULL,
          integer DEFAULT 5, interval DEFAULT NULL, timestamptz DEFAULT NULL, interval DEFAULT NULL, integer DEFAULT NULL,
          OUT id bigint, OUT what text)
        LANGUAGE sql RETURN ROW(1::bigint, 'inserted'::text)
        """
    )
    conn.execute("ALTER FUNCTION messages.publish OWNER TO messages_owner")
    conn.execute(
        """
        DELETE FROM messages.migration
        WHERE name IN ('migrations/0016_workflow.sql', 'functions/publish.sql', 'triggers/ended.sql')
        """
    )
    return conn


def test_who_was_granted_a_function_that_gets_more_arguments_may_still_call_it(
    before_workflows: psycopg.Connection[Any],
) -> None:
    conn = before_workflows
    conn.execute('CREATE ROLE "web Shop"; CREATE ROLE desk')
    try:
        conn.execute('GRANT USAGE ON SCHEMA messages TO "web Shop"')
        conn.execute('GRANT EXECUTE ON FUNCTION messages.publish TO "web Shop" WITH GRANT OPTION')
        conn.execute("GRANT EXECUTE ON FUNCTION messages.publish TO desk")

        schema.migrate(conn)

        with conn.transaction():
            conn.execute('SET LOCAL ROLE "web Shop"')
            assert conn.execute("SELECT what FROM messages.publish('t', '1')").fetchone() == ("inserted",)
        may = "SELECT has_function_privilege(%s, 'messages.publish'::regproc, %s)"
        asked = [("web Shop", "EXECUTE WITH GRANT OPTION"), ("desk", "EXECUTE"), ("desk", "EXECUTE WITH GRANT OPTION")]
        assert [conn.execute(may, each).fetchone() for each in asked] == [(True,), (True,), (False,)]
        assert conn.execute(may, ["public", "EXECUTE"]).fetchone() == (False,)
    finally:
        conn.execute('DROP OWNED BY "web Shop", desk CASCADE; DROP ROLE "web Shop", desk')


def test_what_is_bound_to_a_function_that_gets_more_arguments_is_named_and_in_the_way_until_it_is_dropped(
    before_workflows: psycopg.Connection[Any],
) -> None:
    conn = before_workflows
    conn.execute(
        "CREATE FUNCTION public.check_order(n integer) RETURNS bigint LANGUAGE sql"
        " BEGIN ATOMIC SELECT id FROM messages.publish('order.check', to_jsonb(n)); END"
    )

    with pytest.raises(errors.DependentObjectsStillExist, match=r"function public\.check_order\(integer\)") as caught:
        schema.migrate(conn)
    conn.execute("DROP FUNCTION public.check_order")
    schema.migrate(conn)

    assert "docs/operating/upgrade.md" in str(caught.value.diag.message_hint)
    assert works(conn)


@pytest.mark.parametrize("round_", range(5))
def test_three_migrators_at_once_on_an_empty_database_all_succeed(empty_database: Database, round_: int) -> None:
    begin = Barrier(3)

    def migrate(_: int) -> list[str]:
        conn = empty_database.connect()
        begin.wait(timeout=60)
        return schema.migrate(conn)

    with ThreadPoolExecutor(3) as threads:
        applied = list(threads.map(migrate, range(3)))

    assert sorted(applied) == [[], [], every_script()]
    assert works(empty_database.connect())


def test_two_databases_of_one_server_may_be_migrated_at_once(server: Postgres) -> None:
    with server.new_database() as one, server.new_database() as another, ThreadPoolExecutor(2) as threads:
        applied = list(threads.map(lambda database: schema.migrate(database.connect()), [one, another]))

    assert applied == [every_script()] * 2


def test_it_is_one_transaction_with_what_the_caller_does(empty_database: Database) -> None:
    conn = empty_database.connect()

    with conn.transaction(force_rollback=True):
        conn.execute("CREATE TABLE public.mine ()")
        schema.migrate(conn)
        conn.execute("INSERT INTO messages.message (topic, payload) VALUES ('t', '1')")

    assert not has_schema(conn)
    assert conn.execute("SELECT to_regclass('public.mine')").fetchone() == (None,)


def test_within_a_longer_transaction_the_owners_rights_do_not_linger(empty_database: Database) -> None:
    conn = empty_database.connect()

    with conn.transaction():
        schema.migrate(conn)

        assert conn.execute("SELECT current_user::text").fetchone() == ("postgres",)


def test_a_superuser_hands_the_schema_to_an_owner_that_cannot_log_in(conn: psycopg.Connection[Any]) -> None:
    schema.migrate(conn)

    assert owner(conn) == "messages_owner"


@pytest.fixture(params=['we ird-"N";', "Ümläut 'q'", "%s {} :name", "SELECT"])
def strange(request: pytest.FixtureRequest, server: Postgres) -> Iterator[psycopg.Connection[Any]]:
    """A connection to a database of a name that must be quoted."""
    name = sql.Identifier(request.param)
    with server.admin() as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(name))
        with psycopg.connect(server.dsn(request.param), autocommit=True) as conn:
            yield conn
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


def test_the_database_may_have_any_name(strange: psycopg.Connection[Any]) -> None:
    schema.migrate(strange)

    assert schema.migrate(strange) == []
    assert works(strange)


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


def test_an_owner_who_is_no_superuser_and_may_create_no_roles_installs_it_for_himself(
    plain_owner: psycopg.Connection[Any],
) -> None:
    schema.migrate(plain_owner)

    assert schema.migrate(plain_owner) == []
    assert owner(plain_owner) == "plain Owner"
    assert works(plain_owner)
    assert plain_owner.execute("SELECT bool_and(did >= 0) FROM messages.tick()").fetchone() == (True,)


def test_a_superuser_who_migrates_it_later_is_told_to_leave_that_to_its_owner(
    plain_owner: psycopg.Connection[Any], empty_database: Database, sql_copy: Path
) -> None:
    schema.migrate(plain_owner)
    (sql_copy / "functions/colour.sql").write_text(
        "CREATE FUNCTION messages.colour() RETURNS text LANGUAGE sql AS $$ SELECT 'red' $$"
    )

    with pytest.raises(SchemaMismatch, match="Run `pgrouse migrate` as plain Owner"):
        schema.migrate(empty_database.connect())

    assert schema.migrate(plain_owner) == ["functions/colour.sql"]
    owners = "SELECT DISTINCT proowner::regrole::text FROM pg_proc WHERE pronamespace = 'messages'::regnamespace"
    assert plain_owner.execute(owners).fetchall() == [('"plain Owner"',)]


def test_who_may_not_create_in_the_database_is_told_by_the_server(server: Postgres, empty_database: Database) -> None:
    conn = empty_database.connect()
    conn.execute("SET SESSION AUTHORIZATION messages_worker")

    with pytest.raises(errors.InsufficientPrivilege, match="database"):
        schema.migrate(conn)


def test_on_a_server_without_the_roles_an_owner_who_may_create_none_does_without(private_server: Postgres) -> None:
    with private_server.admin() as admin:
        admin.execute("CREATE ROLE app LOGIN")
        admin.execute("CREATE DATABASE app OWNER app")
    with private_server.admin("app") as conn:
        conn.execute("SET SESSION AUTHORIZATION app")

        schema.migrate(conn)

        assert conn.execute("SELECT rolname FROM pg_roles WHERE rolname LIKE 'messages%'").fetchall() == []
        assert works(conn)
        open_to_all = "SELECT count(*) FROM pg_proc WHERE pronamespace = 'messages'::regnamespace AND has_function_privilege('public', oid, 'EXECUTE')"
        assert conn.execute(open_to_all).fetchone() == (0,)


def test_roles_that_are_made_later_get_their_rights_by_the_next_migration(private_server: Postgres) -> None:
    with private_server.admin() as admin:
        admin.execute("CREATE ROLE app LOGIN")
        admin.execute("CREATE DATABASE app OWNER app")
    with private_server.admin("app") as conn:
        conn.execute("SET SESSION AUTHORIZATION app")
        schema.migrate(conn)
        # A superuser makes them, in any empty database of the server.
        with private_server.admin() as admin:
            schema.migrate(admin)

        schema.migrate(conn)

        conn.execute("RESET SESSION AUTHORIZATION; SET ROLE messages_publisher")
        assert conn.execute(
            "INSERT INTO messages.message (topic, payload) VALUES ('t', '1') RETURNING topic"
        ).fetchone() == ("t",)


def test_check_says_that_the_schema_is_missing(conn: psycopg.Connection[Any]) -> None:
    with pytest.raises(SchemaMismatch) as caught:
        schema.check(conn)

    assert str(caught.value) == "the database has no schema `messages`: run `pgrouse migrate`"


def test_check_says_that_the_schema_is_older(conn: psycopg.Connection[Any], sql_copy: Path) -> None:
    schema.migrate(conn)
    (sql_copy / "migrations/9999_colour.sql").write_text("SELECT 1")

    with pytest.raises(SchemaMismatch) as caught:
        schema.check(conn)

    assert (
        str(caught.value)
        == "the schema is older than this version (no migrations/9999_colour.sql): run `pgrouse migrate`"
    )


def test_check_says_that_the_schema_is_newer(conn: psycopg.Connection[Any], sql_copy: Path) -> None:
    (sql_copy / "migrations/9999_colour.sql").write_text("SELECT 1")
    schema.migrate(conn)
    (sql_copy / "migrations/9999_colour.sql").unlink()

    with pytest.raises(SchemaMismatch) as caught:
        schema.check(conn)

    assert str(caught.value) == (
        "the schema is newer than this version (has migrations/9999_colour.sql): upgrade pgrouse on this machine"
    )


def test_a_worker_may_check(conn: psycopg.Connection[Any]) -> None:
    schema.migrate(conn)
    conn.execute("SET SESSION AUTHORIZATION messages_worker")

    schema.check(conn)


def owner(conn: psycopg.Connection[Any]) -> str:
    row = conn.execute(
        "SELECT r.rolname FROM pg_namespace AS n JOIN pg_roles AS r ON r.oid = n.nspowner WHERE n.nspname = 'messages'"
    ).fetchone()
    assert row is not None
    return str(row[0])
