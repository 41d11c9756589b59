"""Jobs on a cluster lose and double nothing, whatever is killed: Python, executors, Spark's JVM, drivers, the server.

`PGROUSE_KILLS=100` kills more.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import duckdb
import pytest

from pgrouse.errors import ExitCode
from tests.pipeline.cluster import CONF, Cluster, java, standalone
from tests.pipeline.lakes import fill, rows
from tests.server.deadline import eventually
from tests.server.postgres import Database, Postgres
from tests.sql.queue import Queue

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(3600)]
KILLS = int(os.environ.get("PGROUSE_KILLS", "32"))
# A job survives the first three, if the server is back soon; the others end it.
VICTIMS = ("python", "executor", "server", "python", "executor", "jvm", "server", "driver")
ROWS = 2000
FUNCTION = """
def write(batch):
    batch.select("id").write.mode("append").parquet("effects")
"""
WITHIN_S = 300


class Killer:
    """Kills the processes of jobs, one of each kind after the other.

    Attributes:
        done: how many of each kind.
        seed: of the moments.
    """

    def __init__(self, cluster: Cluster, server: Postgres, count: int) -> None:
        self.done: Counter[str] = Counter()
        self.seed = random.randrange(2**32)
        self._chance = random.Random(self.seed)
        self._cluster = cluster
        self._server = server
        self._left = [VICTIMS[n % len(VICTIMS)] for n in range(count)]

    def run(self, job: subprocess.Popen[bytes], log: Path) -> None:
        """Kill again and again, each time after the job has said something, until it has ended."""
        while self._left:
            said = log.stat().st_size
            eventually(lambda said=said: log.stat().st_size > said or job.poll() is not None, WITHIN_S)
            time.sleep(self._chance.uniform(0, 1))
            if job.poll() is not None:
                return
            if self._killed(self._left[0], job):
                self.done[self._left.pop(0)] += 1

    @property
    def is_over(self) -> bool:
        return not self._left

    def _killed(self, victim: str, job: subprocess.Popen[bytes]) -> bool:
        if victim == "server":
            self._server.place.kill()
            self._server.place.start()
            return True
        with suppress(ProcessLookupError, IndexError):
            os.kill(self._chance.choice(self._found(victim, job)), signal.SIGKILL)
            return True
        return False

    def _found(self, victim: str, job: subprocess.Popen[bytes]) -> list[int]:
        if victim == "driver":
            return [job.pid]
        if victim == "jvm":
            children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
            return [int(child) for child in children if _is(int(child), "java")]
        program = "java" if victim == "executor" else "python"
        return [pid for pid in _working_in(self._cluster.folder) if _is(pid, program)]


def _working_in(folder: Path) -> Iterator[int]:
    """Return the processes of executors: they are in the folders of workers."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if folder in (process / "cwd").readlink().parents and "work" in (process / "cwd").readlink().parts:
                yield int(process.name)


def _is(pid: int, program: str) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().startswith(program)
    return False


@contextmanager
def _started(folder: Path, cluster: Cluster, dsn: str, *command: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "SPARK_"))}
    options = ["--master", cluster.master, *(f"--conf={pair}" for pair in CONF)]
    log = folder / "log"
    with log.open("wb") as out:
        job = subprocess.Popen(
            [sys.executable, "-m", "pgrouse", "pipeline", *command, *options],
            cwd=folder,
            env=own | java() | {"PGROUSE_DSN": dsn, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        yield job, log
    finally:
        # The process that holds the locks of a killed driver goes on until it has released them.
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with standalone(folder, workers=1) as cluster:
        yield cluster


@pytest.fixture
def database(private_server: Postgres) -> Iterator[Database]:
    with private_server.new_database(template=private_server.migrated) as database:
        yield database


def _run(folder: Path, killer: Killer, cluster: Cluster, dsn: str, *command: str) -> None:
    """Run a job until it is done, with kills. Each run ends well, with a code that is worth a retry, or killed."""
    codes: Counter[int] = Counter()
    while not (killer.is_over and codes[0]):
        with _started(folder, cluster, dsn, *command) as (job, log):
            killer.run(job, log)
            code = job.wait(WITHIN_S)
        codes[code] += 1
        print(dict(killer.done), dict(codes), flush=True)
        assert code in (0, ExitCode.TRY_AGAIN, ExitCode.DATABASE_UNREACHABLE, -signal.SIGKILL), log.read_text()
        if code == 0 and not killer.is_over:
            return


def test_kills_of_exports_lose_and_double_no_row(
    cluster: Cluster, private_server: Postgres, database: Database, tmp_path: Path
) -> None:
    killer = Killer(cluster, private_server, KILLS // 2)
    lake = str(tmp_path / "lake")
    while not killer.is_over:
        fill(Queue(database.connect()), ROWS)
        _run(tmp_path, killer, cluster, database.dsn, "export", lake, "--batch-rows", "100")

    archived = Queue(database.connect()).rows("SELECT id, payload::text FROM messages.message_archive ORDER BY id")
    assert rows(lake, "id, payload") == [tuple(row) for row in archived], f"seed {killer.seed}"


def test_kills_of_consumers_lose_no_message_and_end_none_twice(
    cluster: Cluster, private_server: Postgres, database: Database, tmp_path: Path
) -> None:
    (tmp_path / "functions.py").write_text(FUNCTION)
    killer = Killer(cluster, private_server, KILLS - KILLS // 2)
    options = ("functions:write", "--topics", "t", "--rows", "100", "--available-now")
    consume = partial(_run, tmp_path, killer, cluster, database.dsn, "consume", *options)
    Queue(database.connect()).policy("t", max_attempts=20, lock_duration="1m")
    published = 0
    while not killer.is_over:
        Queue(database.connect()).publish_many(ROWS, "t")
        published += ROWS
        consume()
    queue = Queue(database.connect())
    while queue.value("SELECT count(*) FROM messages.message"):
        queue.value("SELECT count(*) FROM messages.tick()")  # what no process released waits until its lock expires
        consume()

    ended = queue.rows("SELECT id, result FROM messages.message_archive")
    assert [row.result for row in ended] == ["success"] * published, f"seed {killer.seed}"
    assert len({row.id for row in ended}) == published, f"seed {killer.seed}"
    written = {"files": f"{tmp_path}/effects/*.parquet"}
    effects = duckdb.execute("SELECT count(DISTINCT id) FROM read_parquet($files)", written).fetchall()
    assert effects == [(published,)], f"seed {killer.seed}"
