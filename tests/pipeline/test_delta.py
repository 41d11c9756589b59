"""A Delta table over the files of a lake: each commit is in its log once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from deltalake import DeltaTable

from pyspark_pgrouse.lake import compaction, delta
from pyspark_pgrouse.lake.lake import Lake
from tests.pipeline.lakes import archive, exported, fill, ids, lake, one_by_one
from tests.server.postgres import Database
from tests.sql.queue import Queue

__all__ = ["lake"]


def table(lake: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(lake).to_pyarrow_table().sort_by("id").to_pylist()
    return found


def test_the_table_has_the_rows_of_the_lake(queue: Queue, database: Database, lake: str) -> None:
    fill(queue, 250)
    exported(database, lake, delta=True)

    assert delta.follow(Lake.open(lake)) == 3

    assert [row["id"] for row in table(lake)] == ids(lake) == archive(queue)
    topics = [row.topic for row in queue.rows("SELECT topic FROM messages.message_archive ORDER BY id")]
    assert [row["topic"] for row in table(lake)] == topics


def test_an_existing_commit_is_not_repeated(queue: Queue, database: Database, lake: str) -> None:
    fill(queue, 250)
    exported(database, lake, delta=True)
    delta.follow(Lake.open(lake))
    version = DeltaTable(lake).version()

    assert delta.follow(Lake.open(lake)) == 0
    fill(queue, 5)
    exported(database, lake)
    assert delta.follow(Lake.open(lake)) == 1

    assert DeltaTable(lake).version() == version + 1
    assert [row["id"] for row in table(lake)] == archive(queue)


def test_a_table_killed_between_two_commits_continues_with_the_next(
    queue: Queue, database: Database, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(queue, 250)
    exported(database, lake, delta=True)
    opened = Lake.open(lake)
    append = delta._append
    with monkeypatch.context() as broken:
        broken.setattr(delta, "_append", _killed_at(2, append))
        with pytest.raises(KeyboardInterrupt):
            delta.follow(opened)

    assert delta.follow(opened) == 2

    assert [row["id"] for row in table(lake)] == archive(queue)


def test_an_added_column_is_in_the_table(own_database: Database, lake: str) -> None:
    queue = Queue(own_database.connect())
    fill(queue, 3)
    exported(own_database, lake, delta=True)
    delta.follow(Lake.open(lake))
    queue.conn.execute("ALTER TABLE messages.message_archive ADD COLUMN extra integer DEFAULT 7")
    fill(queue, 3)
    exported(own_database, lake)

    delta.follow(Lake.open(lake))

    assert [row["extra"] for row in table(lake)] == [None] * 3 + [7] * 3


def test_merged_files_replace_the_small_ones(queue: Queue, database: Database, lake: str) -> None:
    for _ in range(3):
        fill(queue, 30, days_ago=1)
        exported(database, lake, delta=True)
    opened = Lake.open(lake)
    delta.follow(opened)

    compaction.compact(opened, one_by_one, datetime.now(UTC).date() + timedelta(days=1))
    delta.follow(opened)
    compaction.expire(opened, timedelta(0))

    assert len(DeltaTable(lake).file_uris()) == len(opened.files()) == 6
    assert [row["id"] for row in table(lake)] == archive(queue)


def _killed_at(number: int, append: Any) -> Any:
    def killed(lake: Lake, manifest: Any) -> None:
        if manifest.number == number:
            raise KeyboardInterrupt
        append(lake, manifest)

    return killed
