"""examples/data_team: one command publishes files, processes them with Spark and prints what came of them."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pgrouse import Client
from tests.pipeline.cluster import java
from tests.pipeline.quick_spark import quick_spark
from tests.server.postgres import Database
from tests.sql.queue import Queue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXAMPLE = Path(__file__).parents[2] / "examples" / "data_team"
# Spark waits 15 s for a Python that it starts; a busy machine takes longer.
PATIENT = {"spark.python.authenticate.socketTimeout": "120s", "spark.driver.bindAddress": "127.0.0.1"}
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


def printed_on_the_page() -> list[str]:
    (block,) = re.findall(r"```text\n(.*?)```", (EXAMPLE / "README.md").read_text(), re.DOTALL)
    return str(block).splitlines()


def test_one_command_prints_what_its_page_says(empty_database: Database, tmp_path: Path) -> None:
    environ = {
        **os.environ,
        **java(),
        "DATABASE_URL": empty_database.dsn,
        "OUTPUT": str(tmp_path),
        **quick_spark(tmp_path / "spark", **PATIENT),
    }

    done = subprocess.run(
        [sys.executable, EXAMPLE / "run.py"], env=environ, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == printed_on_the_page()


@pytest.fixture
def pipeline() -> Any:
    spec = importlib.util.spec_from_file_location("data_team_pipeline", EXAMPLE / "pipeline.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_file_is_published_once_and_what_cannot_be_worked_is_rejected(
    spark: SparkSession, database: Database, queue: Queue, pipeline: Any, tmp_path: Path
) -> None:
    file = EXAMPLE / "readings" / "2026-11-23.jsonl"
    with Client(database.dsn) as client:
        client.set_policy(pipeline.TOPIC, max_attempts=3)

    published = [pipeline.publish(spark, database.dsn, file) for _ in range(2)]
    waiting = queue.value("SELECT count(*) FROM messages.message")
    pipeline.work(spark, database.dsn, tmp_path)

    assert (published, waiting) == ([24, 24], 24)
    assert pipeline.averages(spark, tmp_path).count() == 2
    assert [(row.result, row["count"]) for row in pipeline.results(spark, database.dsn).collect()] == [
        ("rejected", 1),
        ("success", 23),
    ]
    assert queue.value("SELECT error FROM messages.dead") == "no temperature"
