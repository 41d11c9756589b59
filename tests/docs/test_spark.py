"""The examples of docs/reference/spark.md run in their order, in one session."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.docs.page import Page
from tests.pipeline.conftest import spark
from tests.pipeline.lakes import fill
from tests.server.postgres import Database
from tests.sql.conftest import database, empty_shared_database
from tests.sql.queue import Queue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["database", "empty_shared_database", "spark"]
PAGE = Page("docs/reference/spark.md")
DSNS = ("postgresql://reader@db/app", "postgresql://worker@db/app")
EXAMPLES = [block for block in PAGE.blocks if block.kind == "python"]


@pytest.mark.spark
@pytest.mark.long
def test_the_examples_run_from_top_to_bottom(
    spark: SparkSession, queue: Queue, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGROUSE_DSN", database.dsn)
    queue.policy("order.placed", max_attempts=3)
    fill(queue, 30, "order.paid")
    shown: list[Any] = []
    names: dict[str, Any] = {"spark": spark, "print": lambda batch: (shown.append(batch), names["stop"].set())}
    placeholders = {'"s3a://lake': f'"{tmp_path}', **{f'"{dsn}': f'"{database.dsn}' for dsn in DSNS}}
    # A read is planned in a process with the environment that Spark was started with, before this test.
    placeholders['.format("pgrouse")'] = f'.format("pgrouse").option("dsn", "{database.dsn}")'

    for block in EXAMPLES:
        exec(compile(_filled_in(block.text, placeholders), f"{PAGE.name}:{block.line}", "exec"), names)
    for query in spark.streams.active:
        query.awaitTermination(120)

    assert spark.table("archive").count() == 30
    assert len(shown) == 1
    assert queue.value("SELECT count(*) FROM messages.message_archive WHERE topic = 'order.placed'") > 0


def _filled_in(text: str, placeholders: dict[str, str]) -> str:
    for name, value in placeholders.items():
        text = text.replace(name, value)
    return text
