"""Measures publishing over HTTP, one by one and in batches, next to the same INSERTs by pgbench.

All programs share one machine.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bench import pgbench, program, usage
from bench.figure import Figure, Report, Target
from bench.postgres import Database, Postgres
from bench.usage import Machine

from pgrouse.web.access import tokens

HERE = Path(__file__).parent
DIRECT = "pgbench, one INSERT a transaction"
# Batch size, and the promised messages per second.
PROMISED = {1: 2_000, 100: 20_000}


def measure(postgres: Postgres, machine: Machine, rounds: int, seconds: float, connections: int) -> Report:
    """Publish in each way in turn, into a table that is emptied before each run."""
    rates: dict[str, list[float]] = defaultdict(list)
    took: dict[str, list[float]] = defaultdict(list)
    cpu: dict[str, list[float]] = defaultdict(list)
    with postgres.database("http") as database, _server(database) as (port, token, pid):
        for _ in range(rounds):
            _empty(postgres, machine, database)
            rates[DIRECT].append(
                pgbench.run_for(postgres, database, "publish.sql", clients=connections, seconds=round(seconds))[0]
            )
            for batch in PROMISED:
                _empty(postgres, machine, database)
                before = usage.cpu_s(pid)
                found = _client(port, token, connections, seconds, batch)
                if found["refused"]:
                    raise SystemExit(f"{found['refused']} requests were refused")
                published = found["requests"] * batch
                rates[str(batch)].append(published / seconds)
                took[str(batch)].append(found["p99_s"] * 1000)
                cpu[str(batch)].append((usage.cpu_s(pid) - before) / published * 1e6)
    return _report(rates, took, cpu, connections, seconds)


def _empty(postgres: Postgres, machine: Machine, database: Database) -> None:
    with database.connect() as conn:
        conn.execute("TRUNCATE messages.message")
    postgres.checkpoint()
    machine.wait_until_quiet()


@contextmanager
def _server(database: Database) -> Iterator[tuple[int, str, int]]:
    """Run a web server with a token; yield its port, the token, and its process."""
    token = tokens.new()
    with database.connect() as conn:
        conn.execute("SELECT messages.add_token('bench', %s, %s)", [tokens.digest(token), ["publisher"]])
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    command = [str(Path(sys.executable).with_name("pgrouse")), "web", "--listen", f"127.0.0.1:{port}"]
    environ = {**os.environ, "PGROUSE_DSN": database.dsn, "PGROUSE_LOG__LEVEL": "warning"}
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(command, env=environ, cwd=folder)
        try:
            program.wait_until(lambda: _is_ready(port), program.START_WITHIN_S, "the web server")
            yield port, token, process.pid
        finally:
            process.terminate()
            process.wait(program.STOP_WITHIN_S)


def _is_ready(port: int) -> bool:
    with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer:
        return bool(answer.status == 200)
    return False


def _client(port: int, token: str, connections: int, seconds: float, batch: int) -> dict[str, float]:
    command = [
        sys.executable,
        str(HERE / "http_client.py"),
        "127.0.0.1",
        str(port),
        str(connections),
        str(seconds),
        str(batch),
    ]
    done = subprocess.run(command, env={**os.environ, "TOKEN": token}, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _report(
    rates: dict[str, list[float]],
    took: dict[str, list[float]],
    cpu: dict[str, list[float]],
    connections: int,
    seconds: float,
) -> Report:
    direct = Figure(DIRECT, "messages/s", rates[DIRECT])
    figures = [direct]
    for batch, promised in PROMISED.items():
        target = Target(promised, at_least=True, of_value=True)
        figures += [
            Figure(f"over HTTP, batches of {batch}", "messages/s", rates[str(batch)], direct, target),
            Figure(f"batches of {batch}, p99 of a request", "ms", took[str(batch)]),
            Figure(f"batches of {batch}, CPU of the web server", "µs/message", cpu[str(batch)]),
        ]
    about = (
        f"{connections} connections, runs of {seconds:g} s in turn; the client is a lean asyncio program on the same "
        "machine."
    )
    return Report("http", about, figures)
