"""examples/schedulers: Airflow, Dagster and dbt run the examples by their own commands.

Each has an environment of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.pipeline.lakes import fill
from tests.pipeline.quick_spark import quick_spark
from tests.server.postgres import Database
from tests.sql.queue import Queue
from tests.uv import environment

# A registry may be slow, and so is the first start of Airflow: together they take a minute and a half.
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
EXAMPLES = Path(__file__).parents[2] / "examples" / "schedulers"
PGROUSE = Path(sys.executable).with_name("pgrouse")
Run = Callable[..., subprocess.CompletedProcess[str]]
# Names of libpq's variables that are not those of its parameters.
NAMES = {"dbname": "DATABASE"}


@pytest.fixture
def example(request: pytest.FixtureRequest, tmp_path: Path, database: Database) -> Run:
    """Run a program of an example's environment; variables are those that the example's head names."""
    folder = EXAMPLES / request.param
    programs = environment(tmp_path, "--requirement", folder / "requirements.txt") / "bin"
    kept = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    own = {
        "PGROUSE_PROGRAM": str(PGROUSE),
        "PGROUSE_DSN": database.dsn,
        "PGROUSE_LAKE": str(tmp_path / "lake"),
        "PGROUSE_REPORTS": str(tmp_path / "reports"),
        **quick_spark(tmp_path / "spark"),
        "PATH": f"{programs}:{kept['PATH']}",
    }

    def run(program: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        command = [str(programs / program), *arguments]
        return subprocess.run(
            command, cwd=folder, env={**kept, **own, **variables}, capture_output=True, text=True, check=False
        )

    return run


def is_exported(queue: Queue, lake: Path) -> bool:
    """Return whether an export got to the end of the archive, and wrote files."""
    behind = """
        SELECT count(*) FROM messages.message_archive AS a
        WHERE NOT EXISTS (SELECT FROM messages.export_cursor AS c WHERE (a.archive_xid, a.id) <= (c.xid, c.id))"""
    return queue.value(behind) == 0 and any(lake.rglob("*.parquet"))


@pytest.mark.spark
@pytest.mark.parametrize("example", ["airflow"], indirect=True)
def test_airflow_runs_the_export_and_the_report(example: Run, queue: Queue, tmp_path: Path) -> None:
    fill(queue, 30)
    airflow = {
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(EXAMPLES / "airflow"),
    }
    migrated = example("airflow", "db", "migrate", **airflow)
    assert migrated.returncode == 0, migrated.stderr

    for dag in ("pgrouse_export", "pgrouse_report"):
        done = example("airflow", "dags", "test", dag, **airflow)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "state=success" in done.stdout, done.stdout

    assert is_exported(queue, tmp_path / "lake")
    assert (tmp_path / "reports" / "report.html").exists()


@pytest.mark.spark
@pytest.mark.parametrize("example", ["dagster"], indirect=True)
def test_dagster_brings_the_lake_up_to_date(example: Run, queue: Queue, tmp_path: Path) -> None:
    fill(queue, 30)
    home = tmp_path / "dagster"
    home.mkdir()
    command = ["asset", "materialize", "--select", "archive_lake", "-f", "pgrouse_archive.py"]

    done = example("dagster", *command, DAGSTER_HOME=str(home))
    assert done.returncode == 0, done.stdout + done.stderr
    refused = example("dagster", *command, DAGSTER_HOME=str(home), PGROUSE_DSN="dbname=missing host=/nowhere")

    assert is_exported(queue, tmp_path / "lake")
    assert refused.returncode != 0
    assert "the export ended with 69" in refused.stdout + refused.stderr


@pytest.mark.long
@pytest.mark.parametrize("example", ["dbt"], indirect=True)
def test_dbt_builds_incremental_models_of_what_ended(
    example: Run, queue: Queue, database: Database, tmp_path: Path
) -> None:
    variables = {
        f"PG{NAMES.get(key, key.upper())}": str(value) for key, value in conninfo_to_dict(database.dsn).items()
    }
    build = ["build", "--profiles-dir", ".", "--target-path", str(tmp_path / "target"), "--log-path", str(tmp_path)]

    for rows in (30, 60):
        fill(queue, 30)
        done = example("dbt", *build, **variables)
        assert done.returncode == 0, done.stdout + done.stderr
        assert queue.value("SELECT count(*) FROM analytics.ended") == rows

    assert queue.value("SELECT sum(dead) FROM analytics.topic_days") == 6
