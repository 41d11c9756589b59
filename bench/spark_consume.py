"""How fast Spark processes a backlog by a function that does nothing, against one daemon with the same messages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from bench import drain
from bench.figure import Figure, Report, Target
from bench.postgres import Database, Postgres
from bench.usage import Machine

ROWS = 50_000
WITHIN_S = 900
ONE_TASK = f"Spark with one task at a time, batches of {ROWS:,}"
TWO_TASKS = f"Spark with two tasks at a time, batches of {ROWS:,}"
DAEMON = "one daemon process"
# The first batches warm the JVM up, and are small: a consumer runs for hours.
COLD = 7
FILL = """
    INSERT INTO messages.message (topic, payload)
    SELECT 'noop', jsonb_build_object('n', n, 'text', repeat(md5(n::text), 8)) FROM generate_series(1, %s) AS n
"""
# From the first claim of the first warm batch to the last settle; the claims of a batch follow its predecessor at once.
SPAN = """
    SELECT count(*), extract(epoch FROM max(a.archived_at) - min(a.locked_at))::float8
    FROM messages.message_archive AS a
    WHERE a.result = 'success'
      AND a.locked_at > (
        SELECT max(c.archived_at)
        FROM (SELECT archived_at FROM messages.message_archive ORDER BY archived_at LIMIT %s) AS c)
"""
BOOKS = "SELECT count(DISTINCT id), count(*) FROM messages.message_archive WHERE result = 'success'"


def measure(postgres: Postgres, machine: Machine, rounds: int, messages: int) -> Report:
    """Drain the same backlog by Spark and by a daemon, in turn."""
    rates: dict[str, list[float]] = defaultdict(list)
    with postgres.database("backlog") as backlog:
        _publish(backlog, messages)
        for _ in range(rounds):
            rates[ONE_TASK].append(_by_spark(postgres, machine, backlog, messages, "local[1]"))
            rates[TWO_TASKS].append(_by_spark(postgres, machine, backlog, messages, "local[2]"))
            rates[DAEMON].append(drain.by_daemon(postgres, machine, backlog, messages).rate)
    daemon = Figure(DAEMON, "messages/s", rates[DAEMON])
    one = Figure(ONE_TASK, "messages/s", rates[ONE_TASK], limit=daemon, target=Target(0.8, at_least=True))
    two = Figure(TWO_TASKS, "messages/s", rates[TWO_TASKS], limit=one, target=Target(1.6, at_least=True))
    return Report(
        "spark-consume",
        f"{messages:,} messages of some 300 bytes, archive kept, durable; `pgrouse pipeline consume` with a function that does nothing.",
        [daemon, one, two],
        [f"Spark runs on the same machine as the server; its start and its first {COLD} batches are left out."],
    )


def _publish(database: Database, messages: int) -> None:
    with database.connect() as conn:
        conn.execute(FILL, [messages])
        conn.execute("VACUUM ANALYZE messages.message")


def _by_spark(postgres: Postgres, machine: Machine, backlog: Database, messages: int, master: str) -> float:
    with postgres.database("spark", backlog) as database, tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "spark_functions.py").write_text("def nothing(batch):\n    pass\n")
        postgres.checkpoint()
        machine.wait_until_quiet()
        command = [str(Path(sys.executable).with_name("pgrouse")), "pipeline", "consume", "spark_functions:nothing"]
        command += ["--topics", "noop", "--rows", str(ROWS), "--master", master]
        command += ["--available-now", "--allow-single-attempt", "--json"]
        env = {**os.environ, "PGROUSE_DSN": database.dsn}
        done = subprocess.run(
            command, cwd=folder, env=env, capture_output=True, text=True, timeout=WITHIN_S, check=False
        )
        if done.returncode:
            raise SystemExit(f"pgrouse pipeline consume ended with {done.returncode}: {done.stderr}")
        batches = [json.loads(line) for line in done.stdout.splitlines()]
        return _rate(database, messages, sum(batch["messages"] for batch in batches[:COLD]))


def _rate(database: Database, messages: int, cold: int) -> float:
    """Return the messages per second of the warm batches, by the server's clock; check the counts."""
    with database.connect() as conn:
        books = conn.execute(BOOKS).fetchone()
        span = conn.execute(SPAN, [cold]).fetchone()
    if books != (messages, messages) or span is None:
        raise SystemExit(f"{messages} messages were published, but the archive has {books}")
    return float(span[0]) / float(span[1])
