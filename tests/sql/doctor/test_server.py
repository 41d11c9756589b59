"""The doctor's checks of the server, its settings, the schema, tables and the archive."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.sql.deaths import die
from tests.sql.examined import examine, examine_and_fix, rolled_back
from tests.sql.exports import export
from tests.sql.queue import Queue

# messages.examine_server: version, durability, autovacuum and transaction ids of the server.

pytestmark = pytest.mark.every_server

FAR_GONE = """
    UPDATE pg_database SET datfrozenxid = (
      (pg_current_xact_id()::text::bigint + 4294967296 - {age}) % 4294967296
    )::text::xid
    WHERE datname = current_database()
"""


def test_an_unsupported_version_is_reported(queue: Queue) -> None:
    assert examine(queue, "server").of("server_version").level == "ok"

    queue.stop_clock("2040-01-01 00:00+00")
    found = examine(queue, "server").of("server_version")

    assert found.level == "warn"
    assert "has had no fixes" in found.what
    assert "versioning" in found.fix


def test_settings_that_lose_messages_at_a_crash_are_reported(queue: Queue) -> None:
    # The servers of the tests never flush.
    found = examine(queue, "server")

    assert found.wrong["durability"] == "fail"
    assert "fsync is off" in found.text_of("durability")
    assert "ALTER SYSTEM SET full_page_writes = on" in found.text_of("durability")


def test_storage_that_protects_pages_itself_has_no_finding(queue: Queue) -> None:
    with rolled_back(queue, "SET LOCAL neon.timeline_id = 'x'"):
        assert examine(queue, "server").of("durability").level == "ok"


def test_asynchronous_commits_are_a_warning(queue: Queue) -> None:
    assert "synchronous_commit" not in examine(queue, "server").text_of("durability")

    with rolled_back(queue, "SET LOCAL synchronous_commit = off"):
        assert "synchronous_commit is off" in examine(queue, "server").text_of("durability")


def test_a_server_without_autovacuum_is_reported(queue: Queue) -> None:
    # The servers of the tests have none.
    found = examine(queue, "server")

    assert found.wrong["autovacuum"] == "fail"
    assert "ALTER SYSTEM SET autovacuum = on" in found.of("autovacuum").fix


def test_transaction_id_wraparound_is_reported_in_time(queue: Queue) -> None:
    assert examine(queue, "server").of("wraparound").level == "ok"

    with rolled_back(queue, FAR_GONE.format(age=1_200_000_000)):
        assert examine(queue, "server").of("wraparound").level == "warn"
    with rolled_back(queue, FAR_GONE.format(age=2_100_000_000)):
        found = examine(queue, "server").of("wraparound")

    assert found.level == "fail"
    assert "47 million transactions are left" in found.what
    assert "VACUUM (FREEZE)" in found.fix


# messages.examine_settings: harmful settings that sessions inherit.


def test_the_default_settings_have_no_finding(queue: Queue) -> None:
    assert examine(queue, "settings").wrong == {}


@pytest.mark.parametrize(
    ("code", "level", "setting"),
    [
        ("settings", "fail", "session_replication_role = replica"),
        ("settings", "fail", "default_transaction_read_only = on"),
        ("settings", "warn", "default_transaction_isolation = 'repeatable read'"),
        ("planner", "warn", "enable_indexscan = off"),
        ("planner", "warn", "plan_cache_mode = force_custom_plan"),
        ("planner", "warn", "jit_above_cost = 10"),
    ],
)
def test_a_setting_of_the_database_is_found_and_the_fix_resets_it(
    queue: Queue, code: str, level: str, setting: str
) -> None:
    database = queue.conn.info.dbname
    with rolled_back(queue, f"ALTER DATABASE {database} SET {setting}"):
        found, fixed = examine_and_fix(queue, "settings", code)

    assert found.wrong == {code: level}
    assert f"for database {database}" in found.of(code).what
    assert fixed.wrong == {}


def test_a_setting_of_a_role_is_found_and_the_fix_resets_it(queue: Queue) -> None:
    with rolled_back(queue, "ALTER ROLE messages_worker SET session_replication_role = replica"):
        found, fixed = examine_and_fix(queue, "settings", "settings")

    assert "for role messages_worker" in found.of("settings").what
    assert fixed.wrong == {}


def test_a_setting_of_all_roles_is_found_and_the_fix_resets_it(queue: Queue) -> None:
    with rolled_back(queue, "ALTER ROLE ALL SET default_transaction_read_only = on"):
        found, fixed = examine_and_fix(queue, "settings", "settings")

    assert found.wrong == {"settings": "fail"}
    assert fixed.wrong == {}


def test_a_setting_of_the_server_is_found(queue: Queue) -> None:
    with rolled_back(queue, "SET LOCAL enable_indexscan = off"):
        found = examine(queue, "settings")

    assert found.wrong == {"planner": "warn"}
    assert "ALTER SYSTEM RESET enable_indexscan" in found.of("planner").fix


# messages.examine_schema: triggers, indexes and rights of the schema.


def test_an_installed_schema_has_no_finding(queue: Queue) -> None:
    assert examine(queue, "schema").wrong == {}


@pytest.mark.parametrize(
    "change", ["DISABLE TRIGGER new_message", "ENABLE REPLICA TRIGGER new_message", "DISABLE TRIGGER ALL"]
)
def test_a_disabled_trigger_is_found_and_the_fix_enables_it(queue: Queue, change: str) -> None:
    with rolled_back(queue, f"ALTER TABLE messages.message {change}"):
        found = examine(queue, "schema")
        for row in found.rows:
            if row.code == "triggers":
                queue.conn.execute(row.fix.encode())
        fixed = examine(queue, "schema")

    assert found.wrong == {"triggers": "fail"}
    assert "the trigger new_message of messages.message" in found.text_of("triggers")
    assert fixed.wrong == {}


def test_an_invalid_index_is_found(queue: Queue) -> None:
    invalid = "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'messages.{}'::regclass"
    with rolled_back(queue, invalid.format("message_ready"), invalid.format("message_key")):
        found = examine(queue, "schema")

    assert found.wrong == {"indexes": "fail"}
    assert "REINDEX INDEX CONCURRENTLY messages.message_ready;" in found.text_of("indexes")
    assert "REINDEX INDEX CONCURRENTLY messages.message_key;" in found.text_of("indexes")


def test_the_leftover_of_a_reindex_is_found_and_the_fix_drops_it(own_queue: Queue, other: Queue) -> None:
    own_queue.conn.execute("CREATE INDEX message_ready_ccnew ON messages.message (id)")
    own_queue.conn.execute(
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'messages.message_ready_ccnew'::regclass"
    )

    found = examine(own_queue, "schema")
    own_queue.conn.execute(found.of("indexes").fix.encode())

    assert found.wrong == {"indexes": "warn"}
    assert "left over" in found.of("indexes").what
    assert examine(own_queue, "schema").wrong == {}


@pytest.mark.parametrize(
    "grant", ["EXECUTE ON FUNCTION messages.tick", "SELECT ON messages.message_archive", "USAGE ON SCHEMA messages"]
)
def test_rights_of_public_are_found(queue: Queue, grant: str) -> None:
    with rolled_back(queue, f"GRANT {grant} TO PUBLIC"):
        found = examine(queue, "schema")

    assert found.wrong == {"public_rights": "fail"}
    assert grant.rsplit(maxsplit=1)[-1].removeprefix("FUNCTION ") in found.of("public_rights").what


# messages.examine_tables: dead rows, bloated indexes, autovacuum and ids.


def test_installed_tables_have_no_finding(own_queue: Queue) -> None:
    assert examine(own_queue, "tables").wrong == {}


def test_dead_rows_are_found_until_they_are_vacuumed(own_queue: Queue) -> None:
    own_queue.publish_many(500)
    own_queue.conn.execute("DELETE FROM messages.message")
    own_queue.conn.execute("SELECT pg_stat_force_next_flush()")

    found = examine(own_queue, "tables", 100)
    own_queue.conn.execute("VACUUM messages.message")
    own_queue.conn.execute("SELECT pg_stat_force_next_flush()")

    assert found.wrong == {"dead_rows": "warn"}
    assert "messages.message has 500 dead rows for 0 live ones; vacuumed last: never" in found.of("dead_rows").what
    assert "VACUUM messages.message;" in found.of("dead_rows").fix
    assert examine(own_queue, "tables", 100).wrong == {}


def test_more_dead_rows_than_a_vacuum_ever_leaves_are_worse(own_queue: Queue) -> None:
    own_queue.publish_many(500)
    own_queue.conn.execute("DELETE FROM messages.message")
    own_queue.conn.execute("SELECT pg_stat_force_next_flush()")

    assert examine(own_queue, "tables", 10).wrong == {"dead_rows": "fail"}


def test_a_bloated_index_is_found_and_the_fix_rebuilds_it(own_queue: Queue) -> None:
    own_queue.publish_many(3000)
    own_queue.conn.execute("DELETE FROM messages.message WHERE id % 1000 <> 0")
    own_queue.conn.execute("VACUUM messages.message")
    own_queue.conn.execute("SELECT pg_stat_force_next_flush()")

    found = examine(own_queue, "tables", 100_000, 50_000)

    assert found.wrong == {"index_bloat": "warn"}
    assert "messages.message_ready has" in found.text_of("index_bloat")
    assert "REINDEX INDEX CONCURRENTLY messages.message_ready;" in found.text_of("index_bloat")
    for row in found.rows:
        if row.code == "index_bloat":
            own_queue.conn.execute(row.fix.encode())
    assert examine(own_queue, "tables", 100_000, 50_000).wrong == {}


def test_removed_autovacuum_settings_are_found_and_the_fix_restores_them(queue: Queue) -> None:
    with rolled_back(queue, "ALTER TABLE messages.message RESET (autovacuum_vacuum_threshold)"):
        found, fixed = examine_and_fix(queue, "tables", "table_settings")

    assert (found.of("table_settings").level, found.of("table_settings").what) == (
        "warn",
        "autovacuum_vacuum_threshold of messages.message is gone",
    )
    assert "table_settings" not in fixed.wrong


def test_disabled_autovacuum_of_one_table_is_found_and_the_fix_enables_it(queue: Queue) -> None:
    with rolled_back(queue, "ALTER TABLE messages.worker SET (autovacuum_enabled = false)"):
        found, fixed = examine_and_fix(queue, "tables", "table_settings")

    assert (found.of("table_settings").level, found.of("table_settings").what) == (
        "fail",
        "autovacuum is switched off for messages.worker",
    )
    assert "table_settings" not in fixed.wrong


@pytest.mark.parametrize(("last", "level"), [(8_500_000_000_000_000_000, "warn"), (9_223_372_036_854_775_000, "fail")])
def test_ids_that_are_nearly_used_up_are_found(queue: Queue, last: int, level: str) -> None:
    with rolled_back(queue, f"ALTER SEQUENCE messages.message_id_seq RESTART {last}"):
        queue.publish()
        found = examine(queue, "tables").of("identities")

    assert found.level == level
    assert found.what.startswith("messages.message_id_seq has given out")


# messages.examine_archive: missing days of the archive, and rows that the retention cannot delete.


def day(ahead: int) -> str:
    return f"messages.message_archive_{datetime.now(UTC) + timedelta(days=ahead):%Y%m%d}"


def test_a_maintained_archive_has_no_finding(queue: Queue) -> None:
    assert examine(queue, "archive").wrong == {}


def test_a_missing_day_is_found_and_the_fix_creates_it(queue: Queue) -> None:
    with rolled_back(queue, f"DROP TABLE {day(1)}"):
        found, fixed = examine_and_fix(queue, "archive", "partitions")

    assert found.wrong == {"partitions": "warn"}
    assert fixed.wrong == {}


def test_a_missing_today_fails_and_its_rows_in_the_default_partition_are_found(queue: Queue) -> None:
    with rolled_back(queue, f"DROP TABLE {day(0)}"):
        die(queue)
        found, fixed = examine_and_fix(queue, "archive", "partitions")

    assert found.wrong == {"partitions": "fail", "default_partition": "warn"}
    assert fixed.wrong == {}


def test_an_archive_without_a_default_partition_is_found(queue: Queue) -> None:
    with rolled_back(queue, "DROP TABLE messages.message_archive_default"):
        found, fixed = examine_and_fix(queue, "archive", "default_partition")

    assert found.wrong == {"default_partition": "fail"}
    assert fixed.wrong == {}


def test_an_export_that_delays_the_retention_is_found(queue: Queue) -> None:
    queue.policy("*", retention="2 days")
    die(queue)
    export(queue, "lake")
    with rolled_back(queue):
        queue.later("2 days 1 hour")
        queue.conn.execute("SELECT messages.maintain_partitions()")
        assert "exports" not in examine(queue, "archive").wrong
        queue.later("3 days")
        queue.conn.execute("SELECT messages.maintain_partitions()")
        found = examine(queue, "archive")

    assert found.wrong == {"exports": "warn"}
    assert "the retention has waited for the export lake" in found.of("exports").what
    assert "messages.delete_export('lake')" in found.of("exports").fix


def test_transaction_ids_of_the_future_are_found_and_the_fix_replaces_them(queue: Queue) -> None:
    ahead = "(pg_current_xact_id()::text::numeric + 1000000)::text::xid8"
    die(queue)
    queue.conn.execute(f"UPDATE messages.message_archive SET archive_xid = {ahead}".encode())
    queue.conn.execute(f"UPDATE messages.alert SET xid = {ahead}".encode())
    queue.conn.execute(f"UPDATE messages.low_water_mark SET xid = {ahead}".encode())

    found = examine(queue, "archive")
    for statement in found.of("future_xids").fix.split(";"):
        queue.conn.execute(statement.encode())
    fixed = examine(queue, "archive")

    assert found.wrong == {"future_xids": "fail"}
    assert fixed.wrong == {}


@pytest.mark.parametrize(
    ("table", "column"), [("message_archive", "archive_xid"), ("alert", "xid"), ("low_water_mark", "xid")]
)
def test_one_table_of_another_cluster_is_fixed_alone(queue: Queue, table: str, column: str) -> None:
    die(queue)
    queue.conn.execute(f"UPDATE messages.{table} SET {column} = '9000000000000000000'".encode())

    found = examine(queue, "archive")

    assert found.of("future_xids").fix.startswith(f"UPDATE messages.{table} ")
    assert found.of("future_xids").fix.count("UPDATE") == 1
