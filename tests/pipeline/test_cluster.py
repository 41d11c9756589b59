"""Every job runs on a cluster: its tasks get everything they need on executors that were started without any setup."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from tests.pipeline.cluster import CONF, Cluster, java, standalone
from tests.pipeline.lakes import rows
from tests.pipeline.reading import PASSWORD
from tests.server.postgres import Database
from tests.sql.queue import Queue

pytestmark = [
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.timeout(400),
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
from pyspark_pgrouse.connection.connection import connect
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


@pytest.fixture
def dsn(database: Database) -> Iterator[str]:
    """The connection string of a user with only the rights that the jobs need, and a password in it."""
    make = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {} IN ROLE {}").format(
        sql.Identifier(ROLE), PASSWORD, sql.SQL(", ").join(map(sql.Identifier, ROLES))
    )
    with database.server.admin(database.name) as admin:
        admin.execute(make)
        yield database.server.dsn(database.name, ROLE, password=PASSWORD)
        admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(ROLE)))


def test_messages_pass_through_all_jobs_on_executors_without_setup(
    queue: Queue, dsn: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """They are published, processed, exported and reported, and the dead ones redriven."""
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "orders.jsonl").write_text("".join(f'{{"total": {n}}}\n' for n in range(1, COUNT + 1)))

    with standalone(tmp_path_factory.mktemp("cluster")) as cluster:
        output = {"publish": published(cluster, tmp_path, dsn)} | worked(cluster, tmp_path, dsn)

    assert [(each["published"], each["rejected"]) for each in output["publish"]] == [(COUNT, 0)]
    assert [each["messages"] for each in output["consume"]] == [200, 100]
    ended = "SELECT id, result, payload::text, error FROM messages.message_archive ORDER BY id"
    archived = [tuple(row) for row in queue.rows(ended)]
    assert [row[1] for row in archived].count("rejected") == EXPENSIVE
    assert {row[3] for row in archived if row[1] == "rejected"} == {"too expensive"}
    assert [each["rows"] for each in output["export"]] == [COUNT]
    assert rows(tmp_path / "lake", "id, result, payload, error") == archived
    (report,) = output["report"]
    counted = duckdb.execute("SELECT topic, ended, dead FROM read_parquet($f)", {"f": report["tables"]["failures"]})
    assert counted.fetchall() == [("orders", COUNT, EXPENSIVE)]
    assert (tmp_path / "report" / "report.html").stat().st_size > 10_000
    redriven = queue.rows("SELECT (payload->>'total')::int AS total FROM messages.message ORDER BY 1")
    assert [row.total for row in redriven] == list(range(291, COUNT + 1))

    # Each worker took part in each session, and no log has the password.
    executors = cluster.executors()
    sessions = {application for _, application in executors}
    assert (len(sessions), len(executors)) == (2, 2 * cluster.workers)
    assert "Launch" in cluster.logs()
    assert PASSWORD not in cluster.logs()


def published(cluster: Cluster, folder: Path, dsn: str) -> list[dict[str, Any]]:
    """Publish a file by a process, as a user does. The database is in libpq's variables, for executors too."""
    variables = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "dbname": "PGDATABASE"}
    where = {variables[name]: str(value) for name, value in conninfo_to_dict(dsn).items() if name in variables}
    given = [f"spark.executorEnv.{name}={value}" for name, value in where.items()]
    command = ["-m", "pgrouse", "pipeline", "publish", "orders.jsonl", "--row-as-payload", "--topic", "orders"]
    options = ["--json", "--master", cluster.master, *(f"--conf={pair}" for pair in (*CONF, *given))]
    return printed([sys.executable, *command, *options], folder, where)


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
