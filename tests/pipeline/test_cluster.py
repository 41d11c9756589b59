"""Every job runs on a cluster: its tasks get everything they need on executors that were started without any setup."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from pyspark_pgrouse.lake.lake import Lake
from tests.pipeline.cluster import CONF, Cluster, java, standalone
from tests.pipeline.reading import PASSWORD
from tests.server.postgres import Database, Postgres
from tests.sql.queue import Queue

# One server is enough: the others are the same for a cluster.
pytestmark = [
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.timeout(400),
    pytest.mark.parametrize("server", ["15"], indirect=True, scope="module"),
]

ROOT = Path(__file__).parents[2]
COUNT = 300
EXPENSIVE = COUNT // 10
ROLE = "spark_cluster_test"
ROLES = ("messages_publisher", "messages_worker", "messages_operator")
# A function with a part that runs on executors, in a file that they do not have.
SHOP = f"""
import json
from pyspark.sql import functions as f

@f.udf("string")
def verdict(payload):
    return "reject" if json.loads(payload)["total"] > {COUNT - EXPENSIVE} else "complete"

def charge(batch):
    return batch.select("id", verdict("payload").alias("outcome"), f.lit("too expensive").alias("reason"))
"""
# Several jobs in one session: a process for each would only take longer.
PROGRAM = """
import json, os, sys
from pgrouse.cli.root import root
from pyspark_pgrouse.connection import connect
from pyspark_pgrouse.session import session
from tests.pipeline.reading import settled

master, conf, jobs = json.loads(sys.argv[1])
with session("jobs", master, dict(pair.split("=", 1) for pair in conf)), connect(os.environ["PGROUSE_DSN"]) as conn:
    for job in jobs:
        settled(conn)
        code = root.main(["pipeline", *job, "--json"], standalone_mode=False)
        print(json.dumps({"job": job[0], "code": int(code or 0)}), flush=True)
"""
JOBS = (
    ("consume", "shop:charge", "--topics", "orders", "--rows", "200", "--available-now", "--allow-single-attempt"),
    ("export", "lake"),
    ("report", "--lake", "lake", "--since", "1h", "--out", "report"),
    ("redrive", "--lake", "lake", "--where", "get_json_object(payload, '$.total') > 290"),
)


@dataclass(frozen=True)
class Run:
    """The result of one run of every job.

    Attributes:
        cluster: where they ran.
        database: the database of the messages.
        folder: where their files are: `lake` and `report`.
        output: the output of each job, by its name.
    """

    cluster: Cluster
    database: Database
    folder: Path
    output: dict[str, list[dict[str, Any]]]

    @property
    def queue(self) -> Queue:
        return Queue(self.database.connect())


@pytest.fixture(scope="module")
def database(server: Postgres) -> Iterator[Database]:
    with server.new_database(template=server.migrated) as database:
        yield database


@pytest.fixture(scope="module")
def dsn(database: Database) -> Iterator[str]:
    """The connection string of a user with only the rights that the jobs need, and a password in it."""
    make = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {} IN ROLE {}").format(
        sql.Identifier(ROLE), PASSWORD, sql.SQL(", ").join(map(sql.Identifier, ROLES))
    )
    with database.server.admin(database.name) as admin:
        admin.execute(make)
        yield database.server.dsn(database.name, ROLE, password=PASSWORD)
        admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(ROLE)))


@pytest.fixture(scope="module")
def run(database: Database, dsn: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Messages pass through all jobs.

    They are published, processed, exported and reported, and the dead ones redriven.
    """
    folder = tmp_path_factory.mktemp("jobs")
    (folder / "shop.py").write_text(SHOP)
    (folder / "orders.jsonl").write_text("".join(f'{{"total": {n}}}\n' for n in range(1, COUNT + 1)))
    with standalone(tmp_path_factory.mktemp("cluster")) as cluster:
        output = {"publish": published(cluster, folder, dsn)} | worked(cluster, folder, dsn)
        yield Run(cluster, database, folder, output)
        database.disconnect()


def published(cluster: Cluster, folder: Path, dsn: str) -> list[dict[str, Any]]:
    """Publish a file by a process, as a user does. The database is in libpq's variables, for executors too."""
    variables = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "dbname": "PGDATABASE"}
    where = {variables[name]: str(value) for name, value in conninfo_to_dict(dsn).items() if name in variables}
    given = [f"spark.executorEnv.{name}={value}" for name, value in where.items()]
    command = [
        sys.executable,
        "-m",
        "pgrouse",
        "pipeline",
        "publish",
        "orders.jsonl",
        "--row-as-payload",
        "--topic",
        "orders",
    ]
    options = ["--json", "--master", cluster.master, *(f"--conf={pair}" for pair in (*CONF, *given))]
    return printed([*command, *options], folder, where)


def worked(cluster: Cluster, folder: Path, dsn: str) -> dict[str, list[dict[str, Any]]]:
    """Run the other jobs in one session, of a process that has PGROUSE_DSN."""
    command = [sys.executable, "-c", PROGRAM, json.dumps([cluster.master, CONF, JOBS])]
    output: dict[str, list[dict[str, Any]]] = {}
    lines: list[dict[str, Any]] = []
    for line in printed(command, folder, {"PGROUSE_DSN": dsn}):
        lines.append(line)
        if "code" in line:
            output[line["job"]], lines = lines[:-1], []
            assert line["code"] == 0, line
    assert list(output) == [name for name, *_ in JOBS]
    return output


def printed(command: list[str], folder: Path, env: dict[str, str]) -> list[dict[str, Any]]:
    """Run a command to its end and return the objects that it printed."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "SPARK_"))}
    done = subprocess.run(
        command,
        cwd=folder,
        env=own | java() | {"PYTHONPATH": str(ROOT)} | env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert PASSWORD not in done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_publish_makes_a_message_of_every_line(run: Run) -> None:
    assert [(each["published"], each["rejected"]) for each in run.output["publish"]] == [(COUNT, 0)]


def test_consume_ends_every_message_with_the_outcome_of_the_function_on_the_executors(run: Run) -> None:
    ended = run.queue.rows(
        "SELECT result, error, count(*), min((payload->>'total')::int) FROM messages.message_archive "
        "GROUP BY 1, 2 ORDER BY 1"
    )

    assert [each["messages"] for each in run.output["consume"]] == [200, 100]
    assert [tuple(row) for row in ended] == [
        ("rejected", "too expensive", EXPENSIVE, COUNT - EXPENSIVE + 1),
        ("success", None, COUNT - EXPENSIVE, 1),
    ]


def test_export_writes_each_archived_row_to_the_lake_once(run: Run) -> None:
    archived = run.queue.rows("SELECT id, result, payload::text FROM messages.message_archive ORDER BY id")
    files = Lake.open(str(run.folder / "lake")).files()

    there = duckdb.execute("SELECT id, result, payload FROM read_parquet($files) ORDER BY id", {"files": files})

    assert [each["rows"] for each in run.output["export"]] == [COUNT]
    assert there.fetchall() == [tuple(row) for row in archived]


def test_report_counts_the_rows_of_the_lake(run: Run) -> None:
    (report,) = run.output["report"]

    counted = duckdb.execute(
        "SELECT topic, ended, dead FROM read_parquet($path)", {"path": report["tables"]["failures"]}
    ).fetchall()

    assert counted == [("orders", COUNT, EXPENSIVE)]
    assert (run.folder / "report" / "report.html").stat().st_size > 10_000


def test_redrive_redrives_the_dead_messages_selected_in_the_lake(run: Run) -> None:
    back = run.queue.rows("SELECT (payload->>'total')::int AS total FROM messages.message ORDER BY 1")

    assert [row.total for row in back] == list(range(291, COUNT + 1))


def test_every_worker_took_part_in_every_session_and_no_log_has_the_password(run: Run) -> None:
    executors = run.cluster.executors()
    sessions = {application for _, application in executors}

    assert len(sessions) == 2
    assert len(executors) == len(sessions) * run.cluster.workers
    assert "Launch" in run.cluster.logs()
    assert PASSWORD not in run.cluster.logs()
