"""examples/schedulers: Airflow, Dagster and dbt run the examples by their own commands.

Each has an environment of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest
from psycopg.conninfo import conninfo_to_dict

from pgrouse.devdb import postmaster
from tests.pipeline.lakes import fill, ids
from tests.pipeline.quick_spark import quick_spark
from tests.server.deadline import eventually
from tests.server.postgres import Database, Postgres
from tests.sql.queue import Queue
from tests.uv import environment

# A registry may be slow, and so is the first start of Airflow: together they take a minute and a half.
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
EXAMPLES = Path(__file__).parents[2] / "examples" / "schedulers"
PGROUSE = Path(sys.executable).with_name("pgrouse")
Run = Callable[..., subprocess.CompletedProcess[str]]
# `pgrouse`, whose first run kills the server when the files are written and nothing is committed.
KILLING = """#!{python}
import os, signal, sys
from pathlib import Path
from pgrouse.cli import main
from pyspark_pgrouse.jobs import export as job

codes, run = Path({codes!r}), job.on_executors

def killing(*work):
    written = run(*work)
    if not codes.exists():
        os.kill({server}, signal.SIGKILL)
    return written

job.on_executors = killing
code = int(main())
with codes.open("a") as file:
    print(code, file=file)
sys.exit(code)
"""
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


@contextmanager
def killed_once(server: Postgres, folder: Path) -> Iterator[tuple[dict[str, str], Path]]:
    """Return variables that name a `pgrouse` which kills the server in its first run, and the file of its exit codes.

    The server is started again when that run has ended.
    """
    program, codes = folder / "pgrouse", folder / "codes"
    pid = postmaster.pid(server.place.data)
    program.write_text(KILLING.format(python=sys.executable, codes=str(codes), server=pid))
    program.chmod(0o755)

    def start() -> None:
        eventually(codes.exists, 600)
        server.place.start()

    starting = Thread(target=start, daemon=True)
    starting.start()
    yield {"PGROUSE_PROGRAM": str(program)}, codes
    starting.join(60)


@pytest.fixture
def database(private_server: Postgres) -> Iterator[Database]:
    """A database of a server that the test may kill."""
    with private_server.new_database(template=private_server.migrated) as database:
        yield database


@pytest.mark.spark
@pytest.mark.parametrize("example", ["airflow"], indirect=True)
def test_airflow_repeats_the_export_whose_server_was_killed_and_runs_the_report(
    example: Run, queue: Queue, private_server: Postgres, tmp_path: Path
) -> None:
    filled = fill(queue, 30)
    airflow = {
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(EXAMPLES / "airflow"),
    }
    migrated = example("airflow", "db", "migrate", **airflow)
    assert migrated.returncode == 0, migrated.stderr

    with killed_once(private_server, tmp_path) as (killing, codes):
        for dag in ("pgrouse_export", "pgrouse_report"):
            done = example("airflow", "dags", "test", dag, **airflow, **killing)
            assert done.returncode == 0, done.stdout + done.stderr
            assert "state=success" in done.stdout, done.stdout

    assert codes.read_text().split() == ["75", "0", "0"]
    assert ids(tmp_path / "lake") == filled
    assert (tmp_path / "reports" / "report.html").exists()


@pytest.mark.spark
@pytest.mark.parametrize("example", ["dagster"], indirect=True)
def test_dagster_repeats_the_export_whose_server_was_killed(
    example: Run, queue: Queue, private_server: Postgres, tmp_path: Path
) -> None:
    filled = fill(queue, 30)
    home = tmp_path / "dagster"
    home.mkdir()
    command = ["asset", "materialize", "--select", "archive_lake", "-f", "pgrouse_archive.py"]

    with killed_once(private_server, tmp_path) as (killing, codes):
        done = example("dagster", *command, DAGSTER_HOME=str(home), **killing)
    assert done.returncode == 0, done.stdout + done.stderr
    refused = example("dagster", *command, DAGSTER_HOME=str(home), PGROUSE_DSN="nonsense")

    assert codes.read_text().split() == ["75", "0"]
    assert ids(tmp_path / "lake") == filled
    assert refused.returncode != 0
    assert "the export ended with 78" in refused.stdout + refused.stderr


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
