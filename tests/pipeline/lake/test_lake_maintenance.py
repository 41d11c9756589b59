"""A lake stays small.

Small files are merged, old days and single rows go, and no reader sees a row twice or misses one.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable

from pgrouse.errors import ConfigError
from pgrouse.terminal.command import CliSession
from pyspark_pgrouse.connection.connection import connect
from pyspark_pgrouse.jobs.erase import erase as erase_command
from pyspark_pgrouse.jobs.export import Maintenance
from pyspark_pgrouse.lake.columns import ColumnChoice
from pyspark_pgrouse.lake.export import Export, ExportOptions
from pyspark_pgrouse.lake.lake import Lake
from pyspark_pgrouse.lake.maintenance import erase, optimize, vacuum
from tests.pipeline.lakes import archive, data_files, exported, fill, ids, lake, one_by_one, rows
from tests.server.postgres import Database
from tests.sql.queue import Queue

__all__ = ["lake"]

NOW = timedelta(0)


def of_many_files(queue: Queue, database: Database, lake: str) -> Lake:
    """Export in two commits, of two days (one of them is today) and three topics each."""
    for _ in range(2):
        fill(queue, 6)
        exported(database, lake)
    return Lake.open(lake)


# Small files


@pytest.mark.long
def test_small_files_are_merged_and_removed_while_readers_and_the_export_go_on(
    queue: Queue, database: Database, lake: str
) -> None:
    opened = of_many_files(queue, database, lake)
    reader, before = DeltaTable(lake), rows(lake, "*")

    assert (optimize(opened), len(opened.files())) == (12, 6)
    assert rows(lake, "*") == before
    assert optimize(opened) == 0

    # A reader that started before still finds its files, until a vacuum removes what nothing names.
    vacuum(opened, timedelta(days=1))
    assert sorted(reader.to_pyarrow_table().column("id").to_pylist()) == archive(queue)
    Path(opened.files()[0]).with_name("part-00000-left-by-a-crash.parquet").write_bytes(b"half of it")
    assert len(data_files(lake)) == 19
    vacuum(opened, NOW)
    assert len(data_files(lake)) == 6

    fill(queue, 5)
    (commit,) = exported(database, lake)
    assert (commit.rows, ids(lake)) == (5, archive(queue))


def test_files_are_merged_while_a_batch_is_written(queue: Queue, database: Database, lake: str) -> None:
    opened = of_many_files(queue, database, lake)
    fill(queue, 5)

    def beside(work: Callable[[Any], Any], parts: Any) -> Any:
        written = one_by_one(work, parts)
        assert optimize(opened) == 12
        return written

    exported(database, lake, beside)

    assert ids(lake) == archive(queue)


@pytest.mark.long
def test_added_and_removed_columns_are_in_the_merged_files(own_database: Database, lake: str) -> None:
    queue = Queue(own_database.connect())
    queue.conn.execute("ALTER TABLE messages.message_archive ADD COLUMN extra integer DEFAULT 7")
    fill(queue, 6)
    exported(own_database, lake)
    queue.conn.execute("ALTER TABLE messages.message_archive DROP COLUMN extra")
    fill(queue, 6)
    exported(own_database, lake)

    optimize(Lake.open(lake))

    assert [row[0] for row in rows(lake, "extra")] == [7] * 6 + [None] * 6


def test_a_topic_with_a_hostile_name_does_not_stop_the_others(queue: Queue, database: Database, lake: str) -> None:
    for _ in range(2):
        fill(queue, 4, topic="a" + ":" * 190)
        fill(queue, 4, topic="mail")
        exported(database, lake)

    assert optimize(Lake.open(lake)) == 4

    assert ids(lake) == archive(queue)


# Rows that go


def maintained(database: Database, url: str, maintenance: Maintenance) -> dict[str, int]:
    with connect(database.dsn) as conn:
        return maintenance.run(Export.begin(conn, database.dsn, url, ExportOptions()))


def test_old_days_are_deleted_and_their_files_too(queue: Queue, database: Database, lake: str) -> None:
    fill(queue, 6, days_ago=30)
    young = fill(queue, 6)
    exported(database, lake)

    done = maintained(database, lake, Maintenance(retention=timedelta(days=10), vacuum=NOW))

    assert done == {"deleted_files": 6}
    assert (ids(lake), len(data_files(lake))) == (young, 6)
    assert exported(database, lake) == []


@pytest.mark.parametrize("mask", [(), ("key",)])
def test_the_rows_of_a_key_and_of_ids_are_erased(
    queue: Queue, database: Database, lake: str, mask: tuple[str, ...]
) -> None:
    fill(queue, 30)
    queue.conn.execute("UPDATE messages.message_archive SET key = 'o''hara' WHERE id IN (3, 4)")
    exported(database, lake, choice=ColumnChoice(mask=mask))

    assert erase(Lake.open(lake), [7, 1000], ["o'hara", "no-one"]) == 3
    assert ids(lake) == [id_ for id_ in archive(queue) if id_ not in {3, 4, 7}]

    vacuum(Lake.open(lake), NOW)
    assert len(data_files(lake)) == len(Lake.open(lake).files())
    assert exported(database, lake) == []


def test_a_lake_without_keys_erases_by_id_only(queue: Queue, database: Database, lake: str) -> None:
    fill(queue, 3)
    exported(database, lake, choice=ColumnChoice(exclude=("key",)))

    with pytest.raises(ConfigError, match="was made without the column key: name the messages by --id"):
        erase(Lake.open(lake), [], ["k"])
    assert erase(Lake.open(lake), [2], []) == 1


def test_a_day_is_old_by_the_clock_of_the_database(queue: Queue, database: Database, lake: str) -> None:
    fill(queue, 2)
    exported(database, lake)

    maintained(database, lake, Maintenance(retention=NOW))

    today = datetime.now(UTC).date()
    assert {row[0] for row in rows(lake, "date")} <= {today}
    assert ids(lake) != []


def test_the_command_erases_and_says_where_the_rows_still_are(queue: Queue, database: Database, lake: str) -> None:
    fill(queue, 12)
    exported(database, lake)

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(erase_command, [lake, *arguments], obj=CliSession(), catch_exceptions=False)

    assert "say what to erase" in CliRunner().invoke(erase_command, [lake], obj=CliSession()).output
    assert run("--id", "3").output.splitlines() == [
        "erased 1 row", "the replaced files still hold them: --vacuum 0s removes these files at once"
    ]  # fmt: skip
    assert run("--id", "4", "--id", "3", "--vacuum", "0s").output == "erased 1 row\n"
    assert len(data_files(lake)) == 6
    assert run("--key", "no-one").output == "erased 0 rows\n"
