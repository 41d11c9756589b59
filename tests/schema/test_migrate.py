"""The migrator installs the schema, for any caller and in any database."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from threading import Barrier
from typing import Any

import psycopg
import pytest
from psycopg import errors, sql

from pgrouse.database.install import schema
from pgrouse.errors import SchemaMismatch
from tests.schema.installed import every_script, has_schema, objects, owner, works
from tests.server.postgres import Database, Postgres
from tests.server.servers import Missing, Servers


@pytest.mark.every_server
def test_a_fresh_installation_applies_every_script_and_works(conn: psycopg.Connection[Any]) -> None:
    applied = schema.migrate(conn)

    assert applied == every_script()
    assert works(conn)
    schema.check(conn)


def test_migrations_run_in_order_between_functions_of_constraints_and_all_other_objects() -> None:
    scripts = list(schema.scripts())
    before = sorted(file.name.removesuffix(".sql") for file in (schema.sql_root() / "constraints").iterdir())

    kinds = [each.kind for each in scripts]
    names = [each.name for each in scripts]
    first = kinds.index("migration")
    migrations = kinds.count("migration")

    assert names[:first] == before
    assert names[first : first + migrations] == sorted(names[first : first + migrations])
    assert kinds[first : first + migrations] == ["migration"] * migrations
    # Views need the functions that they call.
    last = [(b"CREATE OR REPLACE VIEW" in each.text, each.name) for each in scripts[first + migrations :]]
    assert last == sorted(last)


def test_a_file_is_read_from_any_folder_and_the_ledger_ignores_the_folder(
    installed: psycopg.Connection[Any], sql_copy: Path
) -> None:
    applied = every_script()
    for name, room in (("publish", "functions"), ("admit_message", "a room of its own"), ("state", "archive")):
        (sql_copy / room).mkdir(exist_ok=True)
        [file] = sql_copy.glob(f"*/{name}.sql")
        file.rename(sql_copy / room / file.name)

    assert schema.migrate(installed) == []
    assert every_script() == applied


def test_the_jobs_of_pg_cron_are_not_part_of_the_schema() -> None:
    jobs = {file.name.removesuffix(".sql") for file in (schema.sql_root() / "cron").iterdir()}

    assert jobs
    assert not jobs & set(every_script())


@pytest.mark.every_server
def test_a_second_run_applies_nothing_and_changes_nothing(installed: psycopg.Connection[Any]) -> None:
    before = objects(installed)

    assert schema.migrate(installed) == []
    assert objects(installed) == before


def test_the_ledger_records_each_applied_file_and_the_user(installed: psycopg.Connection[Any]) -> None:
    rows = installed.execute(
        'SELECT kind, name, digest, version, applied_by FROM messages.migration ORDER BY name COLLATE "C"'
    ).fetchall()

    assert [row[:3] for row in rows] == sorted(
        ((s.kind, s.name, s.digest) for s in schema.scripts()), key=lambda row: row[1]
    )
    assert {row[3:] for row in rows} == {(version("pgrouse"), "postgres")}


def test_a_dry_run_returns_what_would_be_applied_and_changes_nothing(conn: psycopg.Connection[Any]) -> None:
    assert schema.migrate(conn, dry_run=True) == every_script()

    assert not has_schema(conn)


def test_a_migration_that_fails_is_rolled_back_completely(conn: psycopg.Connection[Any], sql_copy: Path) -> None:
    (sql_copy / "migrations/9999_broken.sql").write_text("CREATE TABLE messages.colour (); SELECT no_such_function()")

    with pytest.raises(errors.UndefinedFunction):
        schema.migrate(conn)

    assert not has_schema(conn)


def test_a_fresh_installation_needs_no_policy_check(installed: psycopg.Connection[Any]) -> None:
    assert installed.execute("SELECT pg_sequence_last_value('messages.policy_topic_bits')").fetchone() == (1,)


@pytest.mark.every_server
@pytest.mark.parametrize("round_", [0, *(pytest.param(nth, marks=pytest.mark.long) for nth in range(1, 5))])
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


@pytest.mark.every_server
def test_it_runs_in_the_callers_transaction_and_the_owners_rights_end_with_it(empty_database: Database) -> None:
    conn = empty_database.connect()

    with conn.transaction(force_rollback=True):
        conn.execute("CREATE TABLE public.mine ()")
        schema.migrate(conn)
        conn.execute("INSERT INTO messages.message (topic, payload) VALUES ('t', '1')")

        assert conn.execute("SELECT current_user::text").fetchone() == ("postgres",)

    assert not has_schema(conn)
    assert conn.execute("SELECT to_regclass('public.mine')").fetchone() == (None,)


@pytest.mark.every_server
def test_a_superuser_gives_the_schema_to_an_owner_that_cannot_log_in(installed: psycopg.Connection[Any]) -> None:
    assert owner(installed) == "messages_owner"


def test_the_database_may_have_any_name(server: Postgres) -> None:
    name = "Ümläut \"N\"; 'q' %s {} :name"
    with server.admin() as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        with psycopg.connect(server.dsn(name), autocommit=True) as conn:
            schema.migrate(conn)

            assert schema.migrate(conn) == []
            assert works(conn)
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.mark.every_server
def test_an_owner_without_superuser_rights_and_createrole_installs_it_as_its_own(
    plain_owner: psycopg.Connection[Any],
) -> None:
    schema.migrate(plain_owner)

    assert schema.migrate(plain_owner) == []
    assert owner(plain_owner) == "plain Owner"
    assert works(plain_owner)
    assert plain_owner.execute("SELECT bool_and(count >= 0) FROM messages.tick()").fetchone() == (True,)


@pytest.mark.every_server
def test_a_role_that_cannot_create_in_the_database_gets_the_servers_error(
    server: Postgres, empty_database: Database
) -> None:
    conn = empty_database.connect()
    conn.execute("SET SESSION AUTHORIZATION messages_worker")

    with pytest.raises(errors.InsufficientPrivilege, match="database"):
        schema.migrate(conn)


@pytest.fixture
def server_without_roles(session_servers: Servers) -> Iterator[Postgres]:
    try:
        with session_servers.private_server(seeded=False) as server:
            yield server
    except Missing as missing:
        pytest.skip(str(missing))


def test_on_a_server_without_the_roles_an_owner_without_createrole_installs_without_them(
    server_without_roles: Postgres,
) -> None:
    with server_without_roles.admin() as admin:
        admin.execute("CREATE ROLE app LOGIN")
        admin.execute("CREATE DATABASE app OWNER app")
    with server_without_roles.admin("app") as conn:
        conn.execute("SET SESSION AUTHORIZATION app")

        schema.migrate(conn)

        assert conn.execute("SELECT rolname FROM pg_roles WHERE rolname LIKE 'messages%'").fetchall() == []
        assert works(conn)
        open_to_all = (
            "SELECT count(*) FROM pg_proc "
            "WHERE pronamespace = 'messages'::regnamespace AND has_function_privilege('public', oid, 'EXECUTE')"
        )
        assert conn.execute(open_to_all).fetchone() == (0,)

        # A superuser creates them, in any empty database: they get their rights by the next migration.
        with server_without_roles.admin() as admin:
            schema.migrate(admin)
        schema.migrate(conn)
        conn.execute("RESET SESSION AUTHORIZATION; SET ROLE messages_publisher")
        conn.execute("INSERT INTO messages.message (topic, payload) VALUES ('t', '1')")


def test_check_reports_a_missing_schema(conn: psycopg.Connection[Any]) -> None:
    with pytest.raises(SchemaMismatch) as caught:
        schema.check(conn)

    assert str(caught.value) == "the database has no schema `messages`: run `pgrouse migrate`"


def test_a_worker_may_call_check(installed: psycopg.Connection[Any]) -> None:
    installed.execute("SET SESSION AUTHORIZATION messages_worker")

    schema.check(installed)
