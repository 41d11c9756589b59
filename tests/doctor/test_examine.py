"""Findings that only a client can see. Each problem is a real one, and a fix that is a statement is executed."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from pgrouse.config.config import Config
from pgrouse.database.install import schema
from pgrouse.doctor import CODES, Finding, Level, clock, examine, target
from pgrouse.doctor.target import DoctorTarget
from tests.daemon import pgbouncer
from tests.doctor.conftest import Examine
from tests.server.postgres import Database, Postgres

Admin = psycopg.Connection[Any]


def only(found: list[Finding]) -> Finding:
    (finding,) = found
    return finding


def levels(found: list[Finding]) -> dict[str, str]:
    return {each.code: str(each.level) for each in found}


@pytest.fixture(scope="module")
def pooled(database: Database) -> Iterator[str]:
    """The connection string through a pooler in transaction mode."""
    with pgbouncer.in_front_of(database.dsn) as dsn:
        yield dsn


# All checks


def test_every_code_has_a_finding_and_each_problem_has_a_fix(examined: Examine) -> None:
    found = examined()

    assert {each.code for each in found} == set(CODES) - {"unexamined"}
    assert [each for each in found if each.level != Level.OK and not each.fix] == []


# The connection to the database


@pytest.mark.usefixtures("long_timeout")
def test_a_direct_connection_receives_notifications(examined: Examine) -> None:
    assert levels(examined("pooler", "listener")) == {"pooler": "ok", "listener": "ok"}


def test_a_pooler_in_transaction_mode_loses_notifications_and_statements(examined: Examine, pooled: str) -> None:
    found = {each.code: each for each in examined("pooler", "listener", dsn=pooled)}

    assert found["listener"].level is Level.FAIL
    assert "set database.listen_dsn" in (found["listener"].fix or "")
    assert found["pooler"].level is Level.OK
    assert "no statement is prepared" in found["pooler"].what


@pytest.mark.usefixtures("long_timeout")
def test_a_pooler_is_harmless_with_a_direct_listener(examined: Examine, pooled: str, database: Database) -> None:
    found = examined(dsn=pooled, listen_dsn=database.dsn)

    assert levels(found)["listener"] == "ok"
    assert "there is a pooler" in only([each for each in found if each.code == "pooler"]).what
    assert "unexamined" not in levels(found)


def test_a_listener_on_another_database_or_on_none_is_reported_with_the_reason(
    examined: Examine, server: Postgres
) -> None:
    other, none = (only(examined("listener", listen_dsn=server.dsn(name))) for name in ("postgres", "not_there"))

    assert (other.level, none.level) == (Level.FAIL, Level.FAIL)
    assert "the same database" in (other.fix or "")
    assert 'database "not_there" does not exist' in none.what


def test_an_unreachable_database_is_a_finding_and_other_checks_run(examined: Examine, tmp_path: Path) -> None:
    found = {each.code: each for each in examined(dsn=f"host={tmp_path} user=u password=geheim1 dbname=d")}

    by_code = {code: str(each.level) for code, each in found.items()}
    assert by_code == {"configuration": "ok", "crypto_keys": "ok", "connection": "fail", "unexamined": "warn"}
    assert "no server listens there" in (found["connection"].fix or "")
    assert "listener" in found["unexamined"].what
    assert "geheim1" not in str(found)


def test_a_wrong_clock_is_a_warning(examined: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert only(examined("clock")).level is Level.OK

    monkeypatch.setattr(clock, "time", SimpleNamespace(time=lambda: time.time() - 3600))
    found = only(examined("clock"))

    assert found.level is Level.WARN
    assert "3600.0 s behind the server's" in found.what


def test_a_payload_schema_that_cannot_be_checked_here_is_a_failure(
    examined: Examine, admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert only(examined("payload_schemas")).level is Level.OK
    admin.execute(
        "INSERT INTO messages.topic (topic, payload_schema) "
        "VALUES ('bad', '{\"type\": 5}'), ('good', '{\"type\": \"object\"}')"
    )

    (bad,) = examined("payload_schemas")
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    missing = examined("payload_schemas")

    assert (bad.level, "payloads of bad are not checked" in bad.what) == (Level.FAIL, True)
    assert [each.level for each in missing] == [Level.FAIL, Level.FAIL]
    assert "pip install 'pgrouse[schemas]'" in missing[1].what


def test_surprising_keys_of_the_configuration_are_warnings(examined: Examine) -> None:
    topics = {"mail": {"handler": "work:echo", "ack_policy": "ack_first"}}

    found = only(examined("configuration", sections={"topics": topics}))

    assert found.level is Level.WARN
    assert "topics.mail.ack_policy" in found.what


def test_more_possible_connections_of_workers_than_the_server_allows_are_reported(examined: Examine) -> None:
    assert only(examined("connections_needed")).level is Level.OK
    assert only(examined("connections_needed", pool_size=500)).level is Level.WARN

    found = only(examined("connections_needed", sections={"worker": {"processes": 100}}))

    assert found.level is Level.FAIL
    assert "100 workers like this one take 600 connections, 2600 at most" in found.what


# Rights


def test_a_user_without_the_worker_role_is_reported_if_the_configuration_has_handlers(
    examined: Examine, database: Database, admin: Admin
) -> None:
    as_publisher = f"{database.dsn} options='-c role=messages_publisher'"
    handlers = {"topics": {"mail": {"handler": "work:echo"}}}

    idle = only(examined("rights", dsn=as_publisher))
    found = only(examined("rights", dsn=as_publisher, sections=handlers))

    assert (idle.level, found.level) == (Level.OK, Level.FAIL)
    assert "messages_publisher may not call" in found.what
    assert found.fix == 'GRANT messages_worker TO "messages_publisher";'
    admin.execute(found.fix.encode())
    try:
        assert only(examined("rights", dsn=as_publisher, sections=handlers)).level is Level.OK
    finally:
        admin.execute("REVOKE messages_worker FROM messages_publisher")


def test_a_revoked_right_of_a_role_is_found_and_restored_by_migrate(examined: Examine, admin: Admin) -> None:
    admin.execute("REVOKE EXECUTE ON FUNCTION messages.claim FROM messages_worker")

    found = only(examined("grants"))
    schema.migrate(admin)

    assert found.level is Level.FAIL
    assert "messages_worker may not call claim" in found.what
    assert only(examined("grants")).level is Level.OK


def test_a_user_with_few_rights_gets_the_list_of_skipped_checks(examined: Examine, database: Database) -> None:
    found = examined(dsn=f"{database.dsn} options='-c role=messages_analyst'")

    assert "messages_analyst may not see since when" in only([e for e in found if e.code == "snapshot_held"]).what
    unexamined = only([each for each in found if each.code == "unexamined"])
    assert "schema, functions, objects, crypto_needed: this user has no right to see it" in unexamined.what
    assert "GRANT messages_operator" in (unexamined.fix or "")


def test_a_user_without_rights_is_informed(examined: Examine, database: Database) -> None:
    found = examined("ticks", "workers", "partitions", dsn=f"{database.dsn} options='-c role=messages_maintainer'")

    assert only(found).code == "unexamined"
    assert only(found).what == (
        "ticks, tick_tasks, expired_locks, schedules, workers, workers_gone, worker_versions, listeners, "
        "unhandled_topics, "
        "idle_topics, partitions, default_partition, future_xids, exports: this user has no right to see it"
    )


# The schema


def test_a_database_without_the_schema_is_reported_with_the_migrate_command(
    examined: Examine, server: Postgres
) -> None:
    with server.new_database() as empty:
        found = examined(dsn=empty.dsn)

    by_code = {each.code: each for each in found}
    assert by_code["schema"].fix == "run `pgrouse migrate`"
    assert "does not match this version" in by_code["unexamined"].what


def test_pending_files_are_found_and_applied(examined: Examine, admin: Admin) -> None:
    admin.execute("UPDATE messages.migration SET digest = 'older' WHERE name = 'claim'")

    found = only(examined("schema"))
    schema.migrate(admin)

    assert found.level is Level.FAIL
    assert found.what.endswith("the first is claim")
    assert only(examined("schema")).level is Level.OK


NEW_NOW = "CREATE OR REPLACE FUNCTION messages.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT clock_timestamp()'"
DEFINER = "ALTER FUNCTION messages.backoff_delay SECURITY DEFINER"


@pytest.mark.parametrize(
    ("code", "what", "change"),
    [
        ("functions", "messages.now is not as it was installed", NEW_NOW),
        ("functions", "messages.backoff_delay is not as it was installed", DEFINER),
        ("functions", "messages.wait_for is gone", "DROP FUNCTION messages.wait_for"),
        ("objects", "the trigger new_message of message is gone", "DROP TRIGGER new_message ON messages.message"),
        ("objects", "the view dead is gone", "DROP VIEW messages.dead"),
    ],
)
def test_a_manual_change_is_found_and_the_fix_repairs_it(
    examined: Examine, admin: Admin, code: str, what: str, change: str
) -> None:
    assert only(examined(code)).level is Level.OK
    admin.execute(change.encode())

    found = only(examined(code))
    statement, _, command = (found.fix or "").partition(" and run ")
    admin.execute(statement.encode())
    assert command == "`pgrouse migrate`"
    schema.migrate(admin)

    assert (found.level, found.what) == (Level.FAIL, what)
    assert only(examined(code)).level is Level.OK


@pytest.mark.parametrize("index", ["message_ready", "message_key", "message_archive_xid"])
def test_a_missing_index_is_found_with_the_statement_that_creates_it(
    examined: Examine, admin: Admin, index: str
) -> None:
    before = admin.execute("SELECT pg_get_indexdef(%s::regclass)", [f"messages.{index}"]).fetchone()
    admin.execute(f"DROP INDEX messages.{index}".encode())

    found = only(examined("objects"))
    admin.execute((found.fix or "").encode())

    assert (found.level, found.what) == (Level.FAIL, f"the index {index} is gone")
    assert admin.execute("SELECT pg_get_indexdef(%s::regclass)", [f"messages.{index}"]).fetchone() == before
    assert only(examined("objects")).level is Level.OK


# What cannot be examined


def test_a_locked_table_is_reported_as_unexamined_and_the_others_are_examined(
    examined: Examine, database: Database
) -> None:
    with psycopg.connect(database.dsn) as holder:
        holder.execute("LOCK TABLE messages.tick_mark")
        found = examined("ticks", "partitions")

    assert levels(found) == {"partitions": "ok", "unexamined": "warn"}
    unexamined = only([each for each in found if each.code == "unexamined"])
    assert unexamined.what.endswith("schedules: another session holds a lock on it")


def test_a_check_that_takes_too_long_is_abandoned(examined: Examine, database: Database) -> None:
    with psycopg.connect(database.dsn) as holder:
        holder.execute("LOCK TABLE messages.tick_mark")
        began = time.monotonic()
        found = only(examined("ticks", within_s=0.4))

    assert "it took too long" in found.what
    assert time.monotonic() - began < 30


def test_the_remaining_checks_are_skipped_when_the_time_is_over(database: Database) -> None:
    settings = Config.model_validate({"database": {"dsn": database.dsn}})

    found = examine(settings, all_within_s=0)

    assert {each.code for each in found} == {"unexamined"}
    assert "no time was left" in only(found).what


def test_a_broken_connection_is_reopened(
    examined: Examine, admin: Admin, database: Database, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It waits until it is cut.
    monkeypatch.setattr(target, "LIMITS", target.LIMITS.replace("'1s'", "'60s'"))
    cut = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE application_name LIKE 'pgrouse doctor%' AND wait_event_type = 'Lock'"
    )
    with psycopg.connect(database.dsn) as holder:
        holder.execute("LOCK TABLE messages.tick_mark")
        cutter = threading.Thread(target=lambda: eventually(lambda: admin.execute(cut).rowcount))
        cutter.start()
        found = examined("ticks", "partitions")
        cutter.join()

    assert levels(found)["partitions"] == "ok"
    unexamined = only([each for each in found if each.code == "unexamined"]).what
    assert ("ticks" in unexamined, "terminating connection" in unexamined) == (True, True)


def test_errors_are_reported_without_passwords(database: Database) -> None:
    dsn = f"{database.dsn} password=geheim12"
    doctor_target = DoctorTarget(Config.model_validate({"database": {"dsn": dsn}}), within_s=1)

    assert doctor_target.redacted("geheim12 is\nwrong") == "**** is wrong"
