"""The migrator upgrades an installed schema to a later version, here a made-up one.

It recognizes a schema of another version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import psycopg
import pytest
from psycopg import errors

from pgrouse.database.install import schema
from pgrouse.errors import MigrationEdited, SchemaMismatch
from tests.daemon.process import Fleet
from tests.schema.installed import objects, works
from tests.schema.second_version import MIGRATION, NAME, UPGRADE, file
from tests.server.deadline import eventually
from tests.server.postgres import Database

Upgrade = Callable[[], None]
COLOUR = "CREATE FUNCTION messages.colour() RETURNS text LANGUAGE sql AS $$ SELECT 'red' $$"


@pytest.mark.every_server
def test_an_upgrade_applies_only_new_and_changed_files(installed: psycopg.Connection[Any], upgrade: Upgrade) -> None:
    installed.execute("INSERT INTO messages.message (topic, payload) VALUES ('kept', '1')")
    upgrade()

    assert schema.migrate(installed) == UPGRADE

    assert installed.execute("SELECT topic::text, colour FROM messages.message").fetchall() == [("kept", None)]
    assert installed.execute(
        "SELECT messages.colour(), outcome FROM messages.publish('t', '1', p_colour => 'red')"
    ).fetchone() == ("red", "inserted")
    assert works(installed)
    schema.check(installed)
    assert schema.migrate(installed) == []


def test_the_ledger_records_which_version_applied_what(installed: psycopg.Connection[Any], upgrade: Upgrade) -> None:
    upgrade()
    schema.migrate(installed)

    rows = installed.execute(
        "SELECT version, array_agg(name ORDER BY name) FROM messages.migration GROUP BY 1"
    ).fetchall()

    by_version = dict(rows)
    assert by_version.keys() == {version("pgrouse"), NAME}
    assert by_version[NAME] == UPGRADE


def test_a_dry_run_of_an_upgrade_changes_nothing(installed: psycopg.Connection[Any], upgrade: Upgrade) -> None:
    before = objects(installed)
    upgrade()

    assert schema.migrate(installed, dry_run=True) == UPGRADE

    assert objects(installed) == before


@pytest.mark.every_server
def test_an_upgrade_that_fails_leaves_the_schema_as_it_was(
    installed: psycopg.Connection[Any], upgrade: Upgrade, sql_copy: Path
) -> None:
    before = objects(installed)
    upgrade()
    (sql_copy / "migrations/9999_last.sql").write_text("SELECT 1 / 0")

    with pytest.raises(errors.DivisionByZero):
        schema.migrate(installed)

    assert objects(installed) == before
    assert works(installed)


def test_an_upgrade_gives_up_while_another_session_holds_a_table_and_can_be_tried_again(
    installed: psycopg.Connection[Any], upgrade: Upgrade, database: Database
) -> None:
    before = objects(installed)
    upgrade()
    reader = database.connect()

    with reader.transaction():
        reader.execute("SELECT FROM messages.message")
        with pytest.raises(errors.LockNotAvailable):
            schema.migrate(installed)

    assert objects(installed) == before
    assert schema.migrate(installed) == UPGRADE


def test_three_migrators_at_once_on_an_installed_schema_upgrade_it_once(upgrade: Upgrade, database: Database) -> None:
    upgrade()
    begin = Barrier(3)

    def migrate(_: int) -> list[str]:
        conn = database.connect()
        begin.wait(timeout=60)
        return schema.migrate(conn)

    with ThreadPoolExecutor(3) as threads:
        applied = list(threads.map(migrate, range(3)))

    assert sorted(applied) == [[], [], UPGRADE]
    assert works(database.connect())


class Publishers:
    """Publish without a pause, by INSERT and by messages.publish, while the block runs.

    A call of messages.publish that runs while the upgrade drops the function fails, and publishes nothing: it is
    repeated. An INSERT never fails.

    Attributes:
        published: how many messages were published so far.
    """

    def __init__(self, database: Database) -> None:
        self.published = 0
        self._database = database
        self._stop = Event()
        self._threads = ThreadPoolExecutor(2)

    def __enter__(self) -> Publishers:
        ways = (
            "INSERT INTO messages.message (topic, payload) VALUES ('job', '1')",
            "SELECT messages.publish('job', '1', p_channel => 'c')",
        )
        self._running = [self._threads.submit(self._publish, way) for way in ways]
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self.published = sum(each.result() for each in self._running)

    def _publish(self, way: str) -> int:
        count = 0
        with psycopg.connect(self._database.dsn, autocommit=True) as conn:
            while not self._stop.wait(0.01):
                try:
                    conn.execute(way.encode())
                except errors.InternalError_:
                    if way.startswith("INSERT"):
                        raise
                    continue
                count += 1
                self.published += 1
        return count


@pytest.mark.every_server
@pytest.mark.slow
def test_daemons_of_the_previous_version_and_publishers_continue_during_an_upgrade_and_after_it(
    fleet: Fleet, database: Database, upgrade: Upgrade
) -> None:
    conn = database.connect()
    daemons = [fleet.start(conn, {"job": "work:echo"}, dsn=database.dsn) for _ in range(2)]
    upgrade()

    def succeeded() -> int:
        row = conn.execute("SELECT count(*) FROM messages.message_archive WHERE result = 'success'").fetchone()
        assert row is not None
        return int(row[0])

    with Publishers(database) as publishers:
        eventually(lambda: succeeded() >= 20)
        applied = schema.migrate(database.connect())
        before = succeeded()
        eventually(lambda: succeeded() >= before + 20)

    assert applied == UPGRADE
    eventually(lambda: succeeded() == publishers.published)
    assert conn.execute("SELECT count(*) FROM messages.message").fetchone() == (0,)
    assert [each.alive for each in daemons] == [True, True]
    assert [each.stop() for each in daemons] == [0, 0]


def test_a_changed_function_is_replaced(installed: psycopg.Connection[Any], sql_copy: Path) -> None:
    changed = file(sql_copy, "draw_xid")
    changed.write_text(
        changed.read_text().replace("pg_catalog.pg_current_xact_id()::pg_catalog.text::bigint", "42::bigint")
    )

    assert schema.migrate(installed) == ["draw_xid"]
    assert installed.execute("SELECT messages.draw_xid()").fetchone() == (42,)
    assert schema.migrate(installed) == []


def test_a_new_function_is_not_executable_by_public(installed: psycopg.Connection[Any], upgrade: Upgrade) -> None:
    upgrade()

    schema.migrate(installed)

    may = "SELECT has_function_privilege('public', 'messages.colour()', 'EXECUTE')"
    assert installed.execute(may).fetchone() == (False,)


def test_an_edited_migration_is_refused_with_the_fix_and_changes_nothing(
    installed: psycopg.Connection[Any], upgrade: Upgrade, sql_copy: Path
) -> None:
    before = objects(installed)
    upgrade()
    edited = sql_copy / "migrations/0001_message.sql"
    edited.write_text(edited.read_text() + "-- one more comment\n")

    with pytest.raises(MigrationEdited) as caught:
        schema.migrate(installed)

    assert str(caught.value) == (
        "migration 0001_message was edited after it was applied: restore its text and put the change into a new "
        "migration"
    )
    assert objects(installed) == before


@pytest.fixture
def granted(installed: psycopg.Connection[Any]) -> Iterator[psycopg.Connection[Any]]:
    """A schema whose messages.publish two other roles may call, one of them with the grant option."""
    installed.execute('CREATE ROLE "web Shop"; CREATE ROLE desk')
    installed.execute('GRANT USAGE ON SCHEMA messages TO "web Shop"')
    installed.execute('GRANT EXECUTE ON FUNCTION messages.publish TO "web Shop" WITH GRANT OPTION')
    installed.execute("GRANT EXECUTE ON FUNCTION messages.publish, messages.cancel TO desk")
    yield installed
    installed.execute('DROP OWNED BY "web Shop", desk CASCADE; DROP ROLE "web Shop", desk')


MAY = "SELECT has_function_privilege(%s, %s::regproc, %s)"


@pytest.mark.every_server
def test_a_role_that_may_call_a_function_may_still_call_it_with_more_arguments(
    granted: psycopg.Connection[Any], upgrade: Upgrade
) -> None:
    upgrade()

    schema.migrate(granted)

    with granted.transaction():
        granted.execute('SET LOCAL ROLE "web Shop"')
        assert granted.execute("SELECT outcome FROM messages.publish('t', '1')").fetchone() == ("inserted",)
    asked = [
        ("web Shop", "EXECUTE WITH GRANT OPTION"),
        ("desk", "EXECUTE"),
        ("desk", "EXECUTE WITH GRANT OPTION"),
        ("public", "EXECUTE"),
    ]
    may = [granted.execute(MAY, [role, "messages.publish", what]).fetchone() for role, what in asked]
    assert may == [(True,), (True,), (False,), (False,)]


def test_a_right_that_a_migration_revokes_is_not_granted_again(
    granted: psycopg.Connection[Any], sql_copy: Path
) -> None:
    (sql_copy / "migrations/9999_revoke.sql").write_text("REVOKE EXECUTE ON FUNCTION messages.cancel FROM desk")

    schema.migrate(granted)

    assert granted.execute(MAY, ["desk", "messages.cancel", "EXECUTE"]).fetchone() == (False,)
    assert granted.execute(MAY, ["desk", "messages.publish", "EXECUTE"]).fetchone() == (True,)


@pytest.mark.every_server
def test_objects_that_depend_on_a_function_that_gets_more_arguments_are_named_and_prevent_the_upgrade(
    installed: psycopg.Connection[Any], upgrade: Upgrade
) -> None:
    installed.execute(
        "CREATE FUNCTION public.check_order(n integer) RETURNS bigint LANGUAGE sql"
        " BEGIN ATOMIC SELECT id FROM messages.publish('order.check', to_jsonb(n)); END"
    )
    before = objects(installed)
    upgrade()

    with pytest.raises(SchemaMismatch, match=r"function (public\.)?check_order\(integer\)") as caught:
        schema.migrate(installed)
    assert objects(installed) == before
    installed.execute("DROP FUNCTION public.check_order")
    schema.migrate(installed)

    assert str(caught.value).startswith(f"{MIGRATION} ")
    assert "docs/operating/upgrade.md" in str(caught.value)
    assert works(installed)


@pytest.mark.every_server
def test_a_superuser_who_migrates_later_is_referred_to_the_owner(
    plain_owner: psycopg.Connection[Any], empty_database: Database, sql_copy: Path
) -> None:
    schema.migrate(plain_owner)
    (sql_copy / "policy/colour.sql").write_text(COLOUR)

    with pytest.raises(SchemaMismatch, match="Run `pgrouse migrate` as plain Owner"):
        schema.migrate(empty_database.connect())

    assert schema.migrate(plain_owner) == ["colour"]
    owners = "SELECT DISTINCT proowner::regrole::text FROM pg_proc WHERE pronamespace = 'messages'::regnamespace"
    assert plain_owner.execute(owners).fetchall() == [('"plain Owner"',)]


def test_check_reports_an_older_schema(installed: psycopg.Connection[Any], upgrade: Upgrade) -> None:
    upgrade()

    with pytest.raises(SchemaMismatch) as caught:
        schema.check(installed)

    assert str(caught.value) == (
        f"the schema is older than this version (no migration {MIGRATION}): run `pgrouse migrate`"
    )


@pytest.mark.parametrize("does", [schema.check, schema.migrate])
def test_a_newer_schema_is_reported_and_not_changed(
    installed: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch, upgrade: Upgrade, does: Callable[..., object]
) -> None:
    upgrade()
    schema.migrate(installed)
    monkeypatch.undo()
    before = objects(installed)

    with pytest.raises(SchemaMismatch) as caught:
        does(installed)

    assert objects(installed) == before
    assert str(caught.value) == (
        f"the schema is newer than this version (has migration {MIGRATION}): upgrade pgrouse on this machine"
    )
