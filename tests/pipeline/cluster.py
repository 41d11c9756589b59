"""A standalone cluster of Spark on this machine: a master and workers, from the installed pyspark."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from pyspark_pgrouse.java import java_home
from tests.server.deadline import eventually

SPARK_HOME = Path(pyspark.__file__).parent
DEPLOY = "org.apache.spark.deploy"
# For JVMs that live for seconds.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# On one machine executors reach the driver by the loopback, and Spark's pages are not used. For a few hundred rows
# compilers cost more than they save: Java's, and Spark's own.
CONF = (
    f"spark.driver.extraJavaOptions={QUICK}",
    f"spark.executor.extraJavaOptions={QUICK}",
    "spark.sql.codegen.wholeStage=false",
    "spark.sql.codegen.factoryMode=NO_CODEGEN",
    "spark.driver.host=127.0.0.1",
    "spark.driver.bindAddress=127.0.0.1",
    "spark.executor.memory=512m",
    "spark.ui.enabled=false",
    "spark.sql.shuffle.partitions=2",
)
# A cold JVM on a busy machine.
WITHIN_S = 90
ENDS_WITHIN_S = 20
MASTER = re.compile(r"Starting Spark master at (spark://127\.0\.0\.1:[1-9]\d*)")
REGISTERED = re.compile(r"Successfully registered with master spark://")


@dataclass(frozen=True)
class Cluster:
    """A cluster that runs.

    Attributes:
        master: its URL.
        folder: where its master and workers log, and where executors work.
        workers: their number.
    """

    master: str
    folder: Path
    workers: int

    def executors(self) -> set[tuple[str, str]]:
        """Return which worker had an executor of which application."""
        return {(log.parts[-5], log.parts[-3]) for log in self.folder.glob("*/work/app-*/*/stderr")}

    def logs(self) -> str:
        """Return the logs of masters, workers and executors; those of executors begin with their command."""
        logs = [*self.folder.glob("*.log"), *self.folder.glob("*/work/app-*/*/std*")]
        return "\n".join(log.read_text(errors="replace") for log in logs)


@contextmanager
def standalone(folder: Path, workers: int = 2) -> Iterator[Cluster]:
    """Start a cluster on free ports; kill it at the end, with its executors.

    Its environment does not say where a database is: executors know it only from the job.
    """
    with ExitStack() as running:
        master = folder / "master.log"
        running.enter_context(_daemon(master, "master.Master", "--host", "127.0.0.1", "--port", "0"))
        url = _logged(master, MASTER)[1]
        for name in [f"worker{number}" for number in range(1, workers + 1)]:
            work = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / name / "work")]
            running.enter_context(_daemon(folder / f"{name}.log", "worker.Worker", "--host", "127.0.0.1", *work, url))
        for number in range(1, workers + 1):
            _logged(folder / f"worker{number}.log", REGISTERED)
        yield Cluster(url, folder, workers)


def java() -> dict[str, str]:
    """Return what the environment must have for Spark to find its Java."""
    home = java_home()
    return {} if home is None else {"JAVA_HOME": home}


@contextmanager
def _daemon(log: Path, kind: str, *arguments: str) -> Iterator[None]:
    command = [str(SPARK_HOME / "bin" / "spark-class"), f"{DEPLOY}.{kind}", "--webui-port", "0", *arguments]
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "SPARK_", "PYSPARK_"))}
    env = own | java() | {
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK,
        # Its port is fixed.
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
    }  # fmt: skip
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, env=env, cwd=log.parent, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
    try:
        yield
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a daemon and everything it started: executors are in its process group."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=ENDS_WITHIN_S)


def _logged(log: Path, pattern: re.Pattern[str]) -> re.Match[str]:
    """Wait until a daemon has logged something."""

    def found() -> re.Match[str]:
        output = log.read_text(errors="replace")
        match = pattern.search(output)
        assert match, output
        return match

    return eventually(found, within_s=WITHIN_S)
