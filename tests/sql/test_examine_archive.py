"""messages.examine_archive: missing days of the archive, and rows that the retention cannot delete."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.sql.deaths import die
from tests.sql.examined import examine, examine_and_fix, rolled_back
from tests.sql.exports import export
from tests.sql.queue import Queue

pytestmark = pytest.mark.every_server


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
