"""The examples of docs/reference/spark.md run in their order, those in Python in one session."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.shell import PGROUSE
from tests.docs.page import Page
from tests.pipeline.cluster import java
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
COMMANDS = [
    line.removeprefix("$ ")
    for block in PAGE.blocks
    if block.kind == "console"
    for line in block.text.splitlines()
    if line.startswith("$ ")
]


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


@pytest.mark.spark
@pytest.mark.long
def test_the_commands_run_from_top_to_bottom(queue: Queue, database: Database, tmp_path: Path) -> None:
    fill(queue, 30, "order.paid")
    environ = {**os.environ, **java(), "PGROUSE_DSN": database.dsn}
    lake = str(tmp_path / "lake")
    # An export has one lake.
    placeholders = {"s3a://warehouse/queue": lake, "s3a://events/lake": lake, "/var/lib/node_exporter": str(tmp_path)}

    for command in [f"pgrouse pipeline export {lake}", *COMMANDS]:
        _, *arguments = shlex.split(_filled_in(command, placeholders))
        done = subprocess.run([PGROUSE, *arguments], cwd=tmp_path, env=environ, capture_output=True, check=False)
        assert done.returncode == 0, (command, done.stdout, done.stderr)

    assert len(COMMANDS) == 4
    assert (tmp_path / "report" / "report.html").is_file()
    assert "pgrouse_" in (tmp_path / "pgrouse_export.prom").read_text()


def _filled_in(text: str, placeholders: dict[str, str]) -> str:
    for name, value in placeholders.items():
        text = text.replace(name, value)
    return text
