"""examples/data_team: one command publishes files, processes them with Spark and prints what came of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.cluster import java
from tests.pipeline.quick_spark import quick_spark
from tests.server.postgres import Database

EXAMPLE = Path(__file__).parents[2] / "examples" / "data_team"
# Spark waits 15 s for a Python that it starts; a busy machine takes longer.
PATIENT = {"spark.python.authenticate.socketTimeout": "120s", "spark.driver.bindAddress": "127.0.0.1"}
pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]


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
    dead = "SELECT error FROM messages.message_archive WHERE result = 'rejected'"
    assert empty_database.connect().execute(dead).fetchall() == [("no temperature",)]
