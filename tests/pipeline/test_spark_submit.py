"""docs/operating/spark-clusters.md: the program of the page, started by spark-submit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pgrouse.errors import ExitCode
from tests.docs.page import Page
from tests.pipeline.cluster import SPARK_HOME, java
from tests.pipeline.quick_spark import quick_spark

pytestmark = [pytest.mark.spark, pytest.mark.long]
PAGE = Page("docs/operating/spark-clusters.md").section("spark-submit")


SHOW = """
from pyspark_pgrouse.session import session

with session("shown") as spark:
    print("in", spark.sparkContext.master, spark.conf.get("spark.sql.session.timeZone"))
"""


def test_spark_submit_ends_with_the_exit_code_of_the_job(tmp_path: Path) -> None:
    for block in PAGE.blocks:
        if "# pgrouse_job.py" in block.text:
            (tmp_path / "pgrouse_job.py").write_text(block.text)

    done = submitted(tmp_path, "pgrouse_job.py", "pipeline", "export", "lake", PGROUSE_DSN="host=/nowhere")

    assert done.returncode == ExitCode.DATABASE_UNREACHABLE, done.stdout + done.stderr


def test_a_job_runs_where_and_how_spark_submit_says(tmp_path: Path) -> None:
    (tmp_path / "show.py").write_text(SHOW)

    done = submitted(tmp_path, "--master", "local[1]", "--conf", "spark.sql.session.timeZone=Europe/Berlin", "show.py")

    assert "in local[1] Europe/Berlin" in done.stdout, done.stdout + done.stderr


def submitted(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run spark-submit in a folder, in an environment that does not say where a database is."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "SPARK_", "PY"))}
    return subprocess.run(
        [f"{SPARK_HOME}/bin/spark-submit", *arguments],
        cwd=folder,
        env=own | java() | quick_spark(folder / "conf") | {"PYSPARK_PYTHON": sys.executable} | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
