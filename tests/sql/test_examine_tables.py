"""messages.examine_tables: dead rows, bloated indexes, autovacuum and ids."""

from __future__ import annotations

import pytest

from tests.sql.examined import examine, examine_and_fix, rolled_back
from tests.sql.queue import Queue

pytestmark = pytest.mark.every_server


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
