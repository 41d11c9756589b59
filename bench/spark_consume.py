"""Measures how fast Spark processes a backlog with a function, compared with one daemon.

Both have the same messages and the same work.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from bench import drain
from bench.figure import Figure, Report, Target
from bench.postgres import Database, Postgres
from bench.usage import Machine

from tests.pipeline.cluster import standalone

ROOT = Path(__file__).parent.parent
CONF = (
    "spark.driver.host=127.0.0.1",
    "spark.driver.bindAddress=127.0.0.1",
    "spark.executor.memory=512m",
    "spark.ui.enabled=false",
    f"spark.executorEnv.PYTHONPATH={ROOT}",
)
WITHIN_S = 900
# The first batches are small, and the JVM is still cold: a consumer runs for hours.
COLD = 7
FILL = """
    INSERT INTO messages.message (topic, payload)
    SELECT 'noop', jsonb_build_object('n', n, 'text', repeat(md5(n::text), 8)) FROM generate_series(1, %s) AS n
"""
# From the first claim of the first warm batch to the last settle; each batch is claimed immediately after the one
# before.
SPAN = """
    SELECT count(*), extract(epoch FROM max(a.archived_at) - min(a.locked_at))::float8
    FROM messages.message_archive AS a
    WHERE a.result = 'success'
      AND a.locked_at > (
        SELECT max(c.archived_at)
        FROM (SELECT archived_at FROM messages.message_archive ORDER BY archived_at LIMIT %s) AS c)
"""
BOOKS = "SELECT count(DISTINCT id), count(*) FROM messages.message_archive WHERE result = 'success'"


@dataclass(frozen=True)
class Work:
    """The work for each message. `function`: its name among the handlers of a daemon and the functions of Spark."""

    function: str
    about: str
    messages: int
    rows: int


WORKS = (
    Work("nothing", "that does nothing", 500_000, 50_000),
    Work("hash_many", "that uses 0.5 ms of CPU a message", 100_000, 10_000),
)


def measure(postgres: Postgres, machine: Machine, rounds: int) -> Report:
    """Drain the same backlogs with Spark and with a daemon, in turn."""
    figures = [figure for work in WORKS for figure in _figures(postgres, machine, rounds, work)]
    return Report(
        "spark-consume",
        "Messages of some 300 bytes, archive kept, durable; `pgrouse pipeline consume` on a standalone cluster, "
        "its workers with one core each.",
        figures,
        [f"Spark runs on the same machine as the server; its start and its first {COLD} batches are left out."],
    )


def _figures(postgres: Postgres, machine: Machine, rounds: int, work: Work) -> list[Figure]:
    rates: dict[str, list[float]] = defaultdict(list)
    with postgres.database("backlog") as backlog:
        _publish(backlog, work.messages)
        for _ in range(rounds):
            rates["one"].append(_by_spark(postgres, machine, backlog, work, workers=1))
            rates["two"].append(_by_spark(postgres, machine, backlog, work, workers=2))
            rates["daemon"].append(drain.by_daemon(postgres, machine, backlog, work.messages, noop=work.function).rate)
    daemon = Figure(f"one daemon process, a handler {work.about}", "messages/s", rates["daemon"])
    batches = f"batches of {work.rows:,}, a function {work.about}"
    one = Figure(f"Spark, one worker, {batches}", "messages/s", rates["one"], daemon, Target(0.8, at_least=True))
    two = Figure(f"Spark, two workers, {batches}", "messages/s", rates["two"], one, Target(1.6, at_least=True))
    return [daemon, one, two]


def _publish(database: Database, messages: int) -> None:
    with database.connect() as conn:
        conn.execute(FILL, [messages])
        conn.execute("VACUUM ANALYZE messages.message")


def _by_spark(postgres: Postgres, machine: Machine, backlog: Database, work: Work, workers: int) -> float:
    with (
        postgres.database("spark", backlog) as database,
        tempfile.TemporaryDirectory() as folder,
        standalone(Path(folder), workers) as cluster,
    ):
        postgres.checkpoint()
        machine.wait_until_quiet()
        function = f"bench.spark_functions:{work.function}"
        command = [str(Path(sys.executable).with_name("pgrouse")), "pipeline", "consume", function]
        command += ["--topics", "noop", "--rows", str(work.rows), "--master", cluster.master]
        command += [part for setting in CONF for part in ("--conf", setting)]
        command += ["--available-now", "--allow-single-attempt", "--json"]
        env = {**os.environ, "PGROUSE_DSN": database.dsn, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=WITHIN_S, check=False)
        if done.returncode:
            raise SystemExit(f"pgrouse pipeline consume ended with {done.returncode}: {done.stderr}")
        batches = [json.loads(line) for line in done.stdout.splitlines()]
        return _rate(database, work.messages, sum(batch["messages"] for batch in batches[:COLD]))


def _rate(database: Database, messages: int, cold: int) -> float:
    """Return the messages per second of the warm batches, by the server's clock; check the counts."""
    with database.connect() as conn:
        books = conn.execute(BOOKS).fetchone()
        span = conn.execute(SPAN, [cold]).fetchone()
    if books != (messages, messages) or span is None:
        raise SystemExit(f"{messages} messages were published, but the archive has {books}")
    return float(span[0]) / float(span[1])
