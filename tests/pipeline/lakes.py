"""An archive with content, and a lake to export it to, without Spark: partitions run here, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

from pyspark_pgrouse.connection.connection import connect
from pyspark_pgrouse.lake.cursor import held
from pyspark_pgrouse.lake.export import Export, ExportCommit, ExportOptions
from tests.server.postgres import Database
from tests.sql.queue import Queue

# One time for everything that a test archives: it may run over midnight.
NOW = datetime.now(UTC)
# Ids increase by one; the day and the topic change from row to row.
FILL = """
    INSERT INTO messages.message_archive (
      id, topic, priority, payload, body, headers, created_at, available_at, attempts, result, archived_at, output,
      error)
    SELECT
      %(first)s + n, coalesce(%(topic)s, (ARRAY['mail', 'a:b', '007'])[1 + n %% 3]), 5,
      CASE WHEN n %% 5 > 0 THEN jsonb_build_object('n', n, 'text', 'tëxt') END,
      CASE WHEN n %% 5 = 0 THEN '\\x00ff' || int4send(n) END,
      '{"h": 1}', %(now)s, %(now)s, 1, CASE WHEN n %% 10 = 0 THEN 'failed' ELSE 'success' END,
      %(now)s - (n %% 2) * interval '1 day' - %(days_ago)s * interval '1 day', 'null', 'it broke'
    FROM generate_series(0, %(count)s - 1) AS n"""
ALL = "SELECT id FROM messages.message_archive ORDER BY id"


def fill(queue: Queue, count: int, topic: str | None = None, days_ago: int = 0, first: int | None = None) -> list[int]:
    """Archive this number of messages in one transaction, on two days; return their ids."""
    first = first or queue.value("SELECT coalesce(max(id), 0) + 1 FROM messages.message_archive")
    queue.conn.execute(FILL, {"first": first, "count": count, "topic": topic, "days_ago": days_ago, "now": NOW})
    return list(range(first, first + count))


def archive(queue: Queue) -> list[int]:
    """Return the ids of all archived messages."""
    return [row.id for row in queue.rows(ALL)]


def one_by_one(work: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
    """Run parts here, one after the other."""
    return [work(part) for part in parts]


def killed(*_: Any) -> None:
    """Replace a step that a killed process does not reach."""
    raise KeyboardInterrupt


def exported(
    database: Database, url: str, run: Any = one_by_one, partitions: int = 1, **wanted: Any
) -> list[ExportCommit]:
    """Export all rows, in batches of 100 unless set otherwise."""
    asked = ExportOptions(**{"batch_rows": 100} | wanted)
    with connect(database.dsn) as conn, held(conn, asked.name):
        export = Export.begin(conn, database.dsn, url, asked)
        return list(export.batches(run, partitions))


def rows(lake: str | Path, columns: str = "id", where: str = "TRUE", order: str = "id") -> list[Any]:
    """Read a lake with DuckDB, as a Delta table that knows nothing of pgrouse."""
    with duckdb.connect() as db:
        db.register("lake", DeltaTable(lake).to_pyarrow_dataset())
        return db.execute(f"SELECT {columns} FROM lake WHERE {where} ORDER BY {order}").fetchall()


def ids(lake: str | Path) -> list[int]:
    """Return the ids in a lake, each as often as it occurs."""
    return [row[0] for row in rows(lake)]


def data_files(lake: str | Path) -> set[str]:
    """Return all Parquet files in the directory, committed or not."""
    root = Path(lake)
    return {str(path.relative_to(root)) for path in root.rglob("*") if ".parquet" in path.name}


@pytest.fixture
def lake(tmp_path: Path) -> str:
    """A directory for a lake."""
    return str(tmp_path / "lake")
