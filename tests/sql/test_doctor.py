"""messages.doctor: all parts at once."""

from __future__ import annotations

from pgrouse.doctor import sql_checks
from tests.server.postgres import Database
from tests.sql.queue import Queue

DOCTOR = "SELECT * FROM messages.doctor()"


def test_it_returns_at_least_one_row_for_every_code(queue: Queue) -> None:
    found = queue.rows(DOCTOR)

    assert {row.code for row in found} == {code for codes in sql_checks.PARTS.values() for code in codes}
    assert {row.level for row in found} <= {"ok", "warn", "fail"}
    assert [row for row in found if row.level != "ok" and not row.fix] == []


def test_it_changes_nothing_and_runs_in_a_read_only_transaction(queue: Queue) -> None:
    with queue.conn.transaction():
        queue.conn.execute("SET TRANSACTION READ ONLY")
        assert queue.rows(DOCTOR)


def test_analysts_and_operators_see_all_of_it_too(queue: Queue) -> None:
    for role in ("messages_analyst", "messages_operator"):
        with queue.conn.transaction():
            queue.conn.execute(f"SET LOCAL ROLE {role}".encode())
            assert [row for row in queue.rows(DOCTOR) if row.code == "unexamined"] == []


def test_a_part_that_fails_reports_why_and_the_other_parts_continue(queue: Queue, database: Database) -> None:
    holder = Queue(database.connect())
    holder.conn.execute("BEGIN")
    holder.conn.execute("LOCK TABLE messages.schedule")
    queue.conn.execute("SET lock_timeout = '100ms'")

    found = queue.rows(DOCTOR)

    unexamined = [row for row in found if row.code == "unexamined"]
    assert {row.what.split(":")[0] for row in unexamined} == {"ticks", "topics", "workers"}
    assert "lock timeout" in unexamined[0].what
    assert "table_lock" in unexamined[0].fix
    assert "backlog" in {row.code for row in found}


def test_a_missing_right_is_reported_with_the_role_that_has_it(queue: Queue) -> None:
    queue.conn.execute("SET ROLE messages_operator")
    try:
        queue.conn.execute("RESET ROLE")
        queue.conn.execute("REVOKE EXECUTE ON FUNCTION messages.examine_ticks FROM messages_operator")
        queue.conn.execute("SET ROLE messages_operator")
        (row,) = [row for row in queue.rows(DOCTOR) if row.code == "unexamined"]
    finally:
        queue.conn.execute("RESET ROLE")
        queue.conn.execute("GRANT EXECUTE ON FUNCTION messages.examine_ticks TO messages_operator")

    assert row.what.startswith("ticks: permission denied")
    assert row.fix == "GRANT messages_operator TO messages_operator;"
