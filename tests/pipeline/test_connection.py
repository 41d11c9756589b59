"""The preconditions of a read, and the errors if they fail."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from pgrouse.errors import ConfigError, DatabaseUnreachable, SchemaMismatch
from pyspark_pgrouse.connection import connection
from pyspark_pgrouse.options import Options
from pyspark_pgrouse.read.archive_batch import ArchiveBatch
from tests.pipeline.reading import archive, ids, login, spark_schema
from tests.server.postgres import Database


def planned(dsn: str, *names: str, **given: str) -> tuple[ArchiveBatch, list[Any]]:
    options = Options.parse({"dsn": dsn, **given})
    reader = ArchiveBatch(options, spark_schema(options, *names))
    return reader, reader.partitions()


def test_a_database_without_the_schema_is_reported(empty_database: Database) -> None:
    with pytest.raises(SchemaMismatch, match="has no schema messages: run `pgrouse migrate`"):
        planned(empty_database.dsn)


def test_an_archive_without_the_column_is_reported(own_database: Database) -> None:
    own_database.connect().execute("ALTER TABLE messages.message_archive DROP COLUMN archive_xid CASCADE")

    with pytest.raises(SchemaMismatch, match="has no column archive_xid: run `pgrouse migrate`"):
        planned(own_database.dsn)


def test_a_role_without_rights_gets_the_grant_that_fixes_it(own_database: Database) -> None:
    with (
        login(own_database) as dsn,
        pytest.raises(ConfigError, match=r"role spark_test may not use .*: GRANT messages_operator TO spark_test"),
    ):
        planned(dsn)


def test_a_role_without_access_to_payloads_learns_how_to_read_without_them(own_database: Database) -> None:
    error = r"may not read body, .*payload.*GRANT messages_operator TO spark_test, or"
    with login(own_database, "messages_analyst") as dsn, pytest.raises(ConfigError, match=error):
        planned(dsn)


def test_columns_that_select_rows_must_be_readable(own_database: Database) -> None:
    admin = own_database.connect()
    with login(own_database) as dsn:
        admin.execute("GRANT USAGE ON SCHEMA messages TO spark_test")
        admin.execute("GRANT SELECT (id, archive_xid) ON messages.message_archive TO spark_test")
        with pytest.raises(ConfigError, match=r"may not read archived_at, result, topic of messages\.message_archive"):
            planned(dsn, "id", mode="dead", topics="t", since="1h")
        admin.execute("DROP OWNED BY spark_test")


@pytest.mark.parametrize(
    ("role", "columns"),
    [("messages_operator", ()), ("messages_analyst", ("id", "topic", "result", "archived_at"))],
)
def test_a_role_reads_all_permitted_columns(own_database: Database, role: str, columns: tuple[str, ...]) -> None:
    archive(own_database.connect(), [1, 2, 3], result="failed")

    with login(own_database, role) as dsn:
        reader, parts = planned(dsn, *columns, mode="dead", topics="t")
        found = ids(reader, parts)

    assert sorted(found) == [1, 2, 3]


def test_a_read_without_a_dsn_uses_the_environment(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD", "dbname": "PGDATABASE"}
    for name, value in conninfo_to_dict(database.dsn).items():
        if name in names:
            monkeypatch.setenv(names[name], str(value))

    with connection.connect(None) as conn:
        found = conn.info.dbname
    (batch,) = connection.arrow(None, "SELECT current_database()::text AS name")

    assert found == batch.to_pylist()[0]["name"] == database.name


def test_a_query_that_fails_permanently_is_not_retried(database: Database) -> None:
    asked = []

    def wrong(conn: psycopg.Connection[Any]) -> None:
        asked.append(1)
        conn.execute("DO $$ BEGIN RAISE 'no space left' USING ERRCODE = 'disk_full'; END $$")

    with pytest.raises(psycopg.errors.DiskFull):
        connection.run_with_retry(database.dsn, wrong)

    assert asked == [1]


def test_what_a_deadlock_undid_is_done_again(database: Database) -> None:
    asked: list[int] = []

    def once_in_a_deadlock(conn: psycopg.Connection[Any]) -> str:
        asked.append(1)
        if len(asked) == 1:
            conn.execute("DO $$ BEGIN RAISE 'two transactions wait for each other' USING ERRCODE = '40P01'; END $$")
        return "done"

    assert connection.run_with_retry(database.dsn, once_in_a_deadlock) == "done"
    assert asked == [1, 1]


def test_a_server_that_does_not_return_is_reported(database: Database) -> None:
    admin = database.connect()

    def killed(conn: psycopg.Connection[Any]) -> None:
        admin.execute("SELECT pg_terminate_backend(%s)", [conn.info.backend_pid])
        conn.execute("SELECT 1")

    with pytest.raises(DatabaseUnreachable, match="no connection to PostgreSQL"):
        connection.run_with_retry(database.dsn, killed, retry_timeout_s=0)
