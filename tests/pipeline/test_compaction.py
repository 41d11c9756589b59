"""Small files become larger ones, and no concurrent reader sees a row twice or misses one."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pgrouse.errors import PgrouseError
from pyspark_pgrouse.lake import compaction
from pyspark_pgrouse.lake.cursor import ExportConflict
from pyspark_pgrouse.lake.lake import Lake, Snapshot
from pyspark_pgrouse.lake.manifest import DataFile, folder
from tests.pipeline.lakes import archive, data_files, exported, fill, ids, killed, lake, one_by_one, rows
from tests.server.postgres import Database
from tests.sql.queue import Queue

__all__ = ["lake"]

DAY = date(2027, 1, 31)
TOMORROW = datetime.now(UTC).date() + timedelta(days=1)


def a_file(name: str, size: int, day: date = DAY, topic: str = "t") -> DataFile:
    return DataFile(f"{folder(day, topic)}/{name}", day, topic, 1, size)


def planned(*files: DataFile, before: date = DAY + timedelta(days=1), target: int = 100) -> list[list[str]]:
    snapshot = Snapshot(1, files, (), None)
    return [[f.path.rsplit("/", 1)[-1] for f in m.files] for m in compaction.merges(snapshot, before, target)]


def of_many_files(queue: Queue, database: Database, lake: str) -> Lake:
    """Export in six commits, of two days and three topics each."""
    for _ in range(6):
        fill(queue, 30, days_ago=1)
        exported(database, lake)
    return Lake.open(lake)


# What is merged


def test_small_files_of_one_day_and_topic_are_merged_up_to_the_target() -> None:
    assert planned(*(a_file(name, 40) for name in "abcde")) == [["a", "b"], ["c", "d"]]


def test_large_files_and_single_files_are_not_merged() -> None:
    assert (
        planned(a_file("a", 50), a_file("b", 10), a_file("c", 10, topic="u"), a_file("d", 10, DAY - timedelta(days=1)))
        == []
    )


def test_the_current_day_is_not_merged() -> None:
    assert planned(a_file("a", 10), a_file("b", 10), before=DAY) == []


# What readers see


def test_a_compaction_leaves_fewer_files_with_the_same_rows(queue: Queue, database: Database, lake: str) -> None:
    opened = of_many_files(queue, database, lake)
    before = rows(lake, "*")

    merged = compaction.compact(opened, one_by_one, TOMORROW)

    assert (merged, len(opened.files())) == (36, 6)
    assert rows(lake, "*") == before
    assert compaction.compact(opened, one_by_one, TOMORROW) == 0


def test_a_reader_that_started_before_still_finds_its_files(queue: Queue, database: Database, lake: str) -> None:
    opened = of_many_files(queue, database, lake)
    before = opened.files()

    compaction.compact(opened, one_by_one, TOMORROW)
    compaction.expire(opened, timedelta(days=1))

    assert all(Path(path).exists() for path in before)


def test_old_files_are_deleted_after_a_time(queue: Queue, database: Database, lake: str) -> None:
    opened = of_many_files(queue, database, lake)
    compaction.compact(opened, one_by_one, TOMORROW)

    assert compaction.expire(opened, timedelta(0)) == 36

    assert len(data_files(lake)) == 6
    assert ids(lake) == archive(queue)
    assert compaction.expire(opened, timedelta(0)) == 0


def test_the_export_continues_after_a_compaction(queue: Queue, database: Database, lake: str) -> None:
    opened = of_many_files(queue, database, lake)
    compaction.compact(opened, one_by_one, TOMORROW)
    fill(queue, 5)

    (batch,) = exported(database, lake)

    assert batch.rows == 5
    assert ids(lake) == archive(queue)


def test_added_and_removed_columns_are_in_the_merged_files(own_database: Database, lake: str) -> None:
    queue = Queue(own_database.connect())
    queue.conn.execute("ALTER TABLE messages.message_archive ADD COLUMN extra integer DEFAULT 7")
    fill(queue, 6, days_ago=1)
    exported(own_database, lake)
    queue.conn.execute("ALTER TABLE messages.message_archive DROP COLUMN extra")
    fill(queue, 6, days_ago=1)
    exported(own_database, lake)

    compaction.compact(Lake.open(lake), one_by_one, TOMORROW)

    assert [row[0] for row in rows(lake, "extra")] == [7] * 6 + [None] * 6


# Crashes, and concurrent commits


def test_a_kill_before_the_commit_merges_nothing(queue: Queue, database: Database, lake: str) -> None:
    opened = of_many_files(queue, database, lake)
    before = data_files(lake)

    def killed_late(work: Callable[[Any], Any], parts: Any) -> Any:
        one_by_one(work, parts)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compaction.compact(opened, killed_late, TOMORROW)
    assert ids(lake) == archive(queue)

    exported(database, lake)

    assert data_files(lake) == before


@pytest.mark.parametrize("step", ["commit", "checkpoint", "end"])
def test_a_kill_around_the_commit_leaves_every_row_once(
    queue: Queue, database: Database, lake: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    opened = of_many_files(queue, database, lake)
    with monkeypatch.context() as broken:
        broken.setattr(Lake, step, killed)
        with pytest.raises(KeyboardInterrupt):
            compaction.compact(opened, one_by_one, TOMORROW)
    assert ids(lake) == archive(queue)

    fill(queue, 5)
    exported(database, lake)
    again = Lake.open(lake)
    compaction.compact(again, one_by_one, TOMORROW)
    compaction.expire(again, timedelta(0))

    assert ids(lake) == archive(queue)
    assert len(data_files(lake)) == len(again.files())


def test_the_second_of_two_concurrent_commits_is_refused(queue: Queue, database: Database, lake: str) -> None:
    opened = of_many_files(queue, database, lake)

    def overtaken(work: Callable[[Any], Any], parts: Any) -> Any:
        fill(queue, 5)
        exported(database, lake)
        return one_by_one(work, parts)

    with pytest.raises(ExportConflict, match="written to by another process"):
        compaction.compact(opened, overtaken, TOMORROW)

    assert ids(lake) == archive(queue)


def test_a_file_that_lost_rows_is_not_merged(queue: Queue, database: Database, lake: str) -> None:
    opened = of_many_files(queue, database, lake)
    one, other, *_ = sorted(data_files(lake))
    Path(lake, one).write_bytes(_with_fewer_rows(Path(lake, other)))

    with pytest.raises(PgrouseError, match="rows, not"):
        compaction.compact(opened, one_by_one, TOMORROW)


def _with_fewer_rows(file: Path) -> bytes:
    out = io.BytesIO()
    pq.write_table(pq.read_table(file, partitioning=None).slice(1), out)
    return out.getvalue()
