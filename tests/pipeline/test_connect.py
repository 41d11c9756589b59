"""Spark Connect: a client without a JVM reads and publishes; jobs refuse its session."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pyspark_pgrouse.java import java_home
from tests.pipeline.lakes import exported
from tests.pipeline.quick_spark import quick_spark
from tests.server.postgres import Database
from tests.sql.queue import Queue

CLIENT = Path(__file__).with_name("connect_client.py")
pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture
def found(own_database: Database, own_queue: Queue, tmp_path: Path) -> dict[str, Any]:
    """What a client found on three archived messages in a lake and two that are ready."""
    for n in range(1, 6):
        own_queue.publish("t", payload={"n": n})
    own_queue.settle("complete", own_queue.claim("t", limit=3))
    lake = str(tmp_path / "lake")
    exported(own_database, lake)
    home = java_home()
    settings = {
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    environ = {
        **os.environ,
        **({} if home is None else {"JAVA_HOME": home}),
        "PGROUSE_DSN": own_database.dsn,
        "PYSPARK_PYTHON": sys.executable,
        **quick_spark(tmp_path / "spark", **settings),
        # Then the server takes any free port.
        "SPARK_TESTING": "1",
    }
    done = subprocess.run(
        [sys.executable, CLIENT, lake], env=environ, capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    read: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return read


def test_a_client_reads_and_publishes_once_and_jobs_refuse_it(found: dict[str, Any]) -> None:
    refused = found.pop("refused")

    assert found == {
        "archived": {"counted": [["t", "success", 3]], "filtered": 2, "fields": [1, 2, 3]},
        "ready": 4,
        "streamed": 3,
        "lake": [3, 3],
    }
    assert "no option colums: did you mean columns?" in refused[0]
    assert ["unset SPARK_REMOTE" in text for text in refused[1:]] == [True, True]
