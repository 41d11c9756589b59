"""The measured programs: a real `pgrouse run`, and the bare listener that it is compared with."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.postgres import Database

HERE = Path(__file__).parent
START_WITHIN_S = 30
STOP_WITHIN_S = 30

CONFIG = """\
[worker]
{worker}

[handlers]
import_path = ["{handlers}", "{root}"]

[topics.noop]
handler = "handlers:{noop}"

[topics.marked]
handler = "handlers:mark"

[log]
level = "warning"
format = "json"
"""


class Marks:
    """The file in which handlers, and the bare listener, record what they received and when."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def read(self) -> dict[str, int]:
        """Return the time of each mark, in nanoseconds of CLOCK_MONOTONIC."""
        if not self.file.exists():
            return {}
        return {what: int(at) for what, at in map(str.split, self.file.read_text().splitlines())}

    def wait_for(self, marks: set[str], within_s: float = 30) -> dict[str, int]:
        """Return the times when all these marks are present."""
        wait_until(lambda: marks <= self.read().keys(), within_s, f"{len(marks)} marks in {self.file}")
        return self.read()


@contextmanager
def daemon(
    database: Database,
    *,
    concurrency: int | None = None,
    noop: str = "nothing",
    marks: Path | None = None,
    messages: int = 0,
    processes: int = 1,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a daemon on this database; its warnings go to the standard error.

    Args:
        concurrency: the concurrency of the worker; None = the default.
        noop: the handler of the topic "noop".
        marks: where the handlers "mark" (of the topic "marked") and "tally" write.
        messages: how many the handler "tally" expects.
        processes: the number of daemon processes; with several, their supervisor is yielded.
    """
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "pgrouse.toml"
        worker = f"processes = {processes}" + ("" if concurrency is None else f"\nconcurrency = {concurrency}")
        config.write_text(CONFIG.format(worker=worker, handlers=HERE, root=HERE.parent, noop=noop))
        command = [str(Path(sys.executable).with_name("pgrouse")), "run", "--config", str(config)]
        with _running(command, database, marks, messages) as process:
            yield process


@contextmanager
def bare_listener(database: Database, channel: str, marks: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run the bare listener; it listens when this yields."""
    with _running([sys.executable, str(HERE / "bare_listener.py"), channel, str(marks)], database, None) as process:
        Marks(marks).wait_for({"listening"})
        yield process


def steady_publisher(database: Database, rate: int, seconds: int, connections: int, calls: Path) -> None:
    """Publish to the topic "marked" at this rate, and record in `calls` when each message was published."""
    command = [sys.executable, str(HERE / "steady_publisher.py"), *map(str, (rate, seconds, connections, calls))]
    subprocess.run(command, env={**os.environ, "PGROUSE_DSN": database.dsn}, check=True)


def wait_until(condition: Callable[[], bool], within_s: float, what: str) -> None:
    """Poll until the condition holds.

    Raises:
        SystemExit: it does not, in time.
    """
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"after {within_s} s still waiting for {what}")
        time.sleep(0.02)


def wait_until_registered(database: Database, processes: int = 1) -> None:
    """Wait until this many processes begin to work."""
    with database.connect() as conn:
        query = b"SELECT count(*) >= %s FROM messages.worker"
        wait_until(lambda: conn.execute(query, [processes]).fetchone() == (True,), START_WITHIN_S, "a daemon")


def wait_until_asleep(database: Database) -> None:
    """Wait until a daemon has processed everything and is armed."""
    with database.connect() as conn:
        query = b"SELECT EXISTS (SELECT FROM messages.sleeper AS s WHERE s.armed_until > clock_timestamp())"
        wait_until(lambda: conn.execute(query).fetchone() == (True,), START_WITHIN_S, "an armed daemon")


@contextmanager
def _running(
    command: list[str], database: Database, marks: Path | None, messages: int = 0
) -> Iterator[subprocess.Popen[bytes]]:
    told = {"PGROUSE_BENCH_MARKS": str(marks), "PGROUSE_BENCH_MESSAGES": str(messages)} if marks else {}
    env = {**os.environ, "PGROUSE_DSN": database.dsn, **told}
    process = subprocess.Popen(command, env=env)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(STOP_WITHIN_S)
