"""The session of a job: errors of Java, of the Python of executors, and after Spark has ended."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pgrouse.errors import ConfigError, DatabaseUnreachable, ExitCode
from pyspark_pgrouse import java
from pyspark_pgrouse.errors import pgrouse_error
from pyspark_pgrouse.session import SparkEnded, session
from tests.pipeline.quick_spark import quick_spark
from tests.server.postgres import Database
from tests.sql.queue import Queue

ENDED = "Spark's JVM has ended (killed? out of memory: --conf spark.driver.memory=4g gives it more): run it again"


class Running:
    """A session that only answers whether Spark runs.

    Args:
        is_stopped: answers that, or raises.
    """

    def __init__(self, is_stopped: Callable[[], bool]) -> None:
        self.isStopped = is_stopped
        self._jsc = self.sparkContext = self

    def sc(self) -> Running:
        return self


def _refused() -> bool:
    raise ConnectionRefusedError(111, "Connection refused")


def _network() -> bool:
    raise Py4JNetworkError("Answer from Java side is empty")


@pytest.mark.parametrize("is_stopped", [_refused, _network, lambda: True])
def test_an_error_after_spark_ended_names_the_cause_and_advises_a_retry(
    monkeypatch: pytest.MonkeyPatch, is_stopped: Callable[[], bool]
) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: Running(is_stopped))

    with pytest.raises(SparkEnded) as raised, session("t"):
        raise ConnectionRefusedError(111, "Connection refused")

    assert str(raised.value) == ENDED
    assert raised.value.exit_code is ExitCode.TRY_AGAIN


def test_an_error_of_the_database_is_reported_even_if_spark_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: Running(_refused))

    with pytest.raises(DatabaseUnreachable, match="away"), session("t"):
        raise DatabaseUnreachable("away")


PROGRAM = """
import os, signal, sys
from pgrouse.cli import main
from pyspark_pgrouse.jobs import export as job

run = job.on_executors

def killed(spark, work, parts):
    os.kill(spark.sparkContext._gateway.proc.pid, signal.SIGKILL)
    return run(spark, work, parts)

job.on_executors = killed
sys.argv[0] = "pgrouse"
sys.exit(main())
"""


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_job_whose_jvm_is_killed_reports_it_in_one_line_and_exits_with_75(
    database: Database, queue: Queue, tmp_path: Path
) -> None:
    queue.publish_many(10)
    queue.settle("complete", queue.claim())
    command = [sys.executable, "-c", PROGRAM, "pipeline", "export", str(tmp_path / "lake"), "--master", "local[1]"]

    done = subprocess.run(
        command, env={**os.environ, "PGROUSE_DSN": database.dsn}, capture_output=True, text=True, check=False
    )

    assert done.returncode == ExitCode.TRY_AGAIN, done.stderr
    assert [line for line in done.stderr.splitlines() if "pgrouse" in line] == [f"pgrouse: {ENDED}"]
    assert "Traceback" not in done.stderr


# The Python of executors


MISSING = "ModuleNotFoundError: No module named '{}'"
FAILED = """Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times
  File "/spark/python/lib/pyspark.zip/pyspark/worker.py", line 2044, in read_command
{}

\tat org.apache.spark.api.python.BasePythonRunner
"""
INSTALL = "pip install 'pgrouse[spark]' there, or name by PYSPARK_PYTHON the one that has it"


@pytest.mark.parametrize("module", ["pyspark_pgrouse", "pgrouse", "pyarrow", "psycopg", "adbc_driver_postgresql"])
def test_an_executor_without_pgrouse_is_reported_in_one_line_with_what_to_install(module: str) -> None:
    error = pgrouse_error(FAILED.format(MISSING.format(module)))

    assert isinstance(error, ConfigError)
    assert str(error) == f"the Python of Spark's executors has no module {module}: {INSTALL}"


@pytest.mark.parametrize(
    ("trace", "code", "said"),
    [
        (
            'java.io.IOException: Cannot run program "/opt/venv/bin/python3.11": error=2, No such file',
            ExitCode.BAD_CONFIG,
            f"Spark's executors have no Python /opt/venv/bin/python3.11: {INSTALL}",
        ),
        ("Python worker failed to connect back.", ExitCode.TRY_AGAIN, "did not start within 10 s"),
        ("Python worker exited unexpectedly (crashed).", ExitCode.TRY_AGAIN, "killed? out of memory?"),
        ("pyspark_pgrouse.lake.directory.LakeUnwritable: no space\n\tat org.apache", ExitCode.TRY_AGAIN, "no space"),
    ],
)
def test_an_error_of_executors_is_reported_in_one_line(trace: str, code: ExitCode, said: str) -> None:
    error = pgrouse_error(f"Traceback ...\n{trace}")

    assert error is not None
    assert (error.exit_code, said in str(error)) == (code, True)


@pytest.mark.parametrize(
    "trace", [MISSING.format("pgrouse_shop"), MISSING.format("shop"), "OutOfMemoryError: Java heap"]
)
def test_an_error_of_the_user_or_of_java_is_no_error_of_pgrouse(trace: str) -> None:
    assert pgrouse_error(trace) is None


def test_a_pgrouse_error_inside_an_error_of_spark_is_reported_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: Running(lambda: False))

    with pytest.raises(ConfigError, match="has no module pyspark_pgrouse"), session("t"):
        raise PySparkException("ModuleNotFoundError: No module named 'pyspark_pgrouse'")


# Java


@pytest.fixture
def javas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """`javas(name, version)` makes a Java below that name; there is no other one."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(java, "find_spec", lambda _: None)

    def make(name: str, version: str) -> Path:
        program = tmp_path / name / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.write_text(f"""#!/bin/sh\necho 'openjdk version "{version}"' >&2\n""")
        program.chmod(0o755)
        return tmp_path / name

    return make


def test_a_client_of_spark_connect_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://localhost")

    with (
        pytest.raises(ConfigError, match="unset SPARK_REMOTE, and name the cluster by --master") as raised,
        session("t"),
    ):
        pass

    assert raised.value.exit_code is ExitCode.BAD_CONFIG


def test_a_missing_java_home_is_named_even_if_java_is_on_the_path(
    javas: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setenv("PATH", str(javas("good", "17.0.15") / "bin"))

    with pytest.raises(ConfigError) as refused:
        java.java_home()

    assert str(refused.value).startswith("JAVA_HOME is /nowhere, and there is no Java that runs in it: ")
    assert "unset it" in str(refused.value)
    assert "Java 0" not in str(refused.value)


def test_a_java_that_is_too_old_is_reported_with_its_version(
    javas: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(javas("old", "11.0.2")))

    with pytest.raises(ConfigError, match=r"Spark needs Java 17 or newer, but .*/old/bin/java is Java 11"):
        java.java_home()


def test_the_java_on_the_path_is_used_without_a_java_home(
    javas: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(javas("good", "17.0.15") / "bin"))

    assert java.java_home() is None


def test_a_missing_java_is_reported_with_what_to_install(javas: Callable[[str, str], Path]) -> None:
    with pytest.raises(ConfigError, match="Spark needs Java, but there is none in JAVA_HOME or on PATH"):
        java.java_home()


# What Spark logs


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_start_of_a_job_logs_nothing_but_a_warning_of_java(tmp_path: Path) -> None:
    program = "from pyspark_pgrouse.session import session\nwith session('quiet', 'local[1]'): pass"

    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if "incubator modules" not in line] == []


# Where it runs

SETTINGS_OF_TWO = """
from pyspark_pgrouse.session import session
for master in (None, "local[2]"):
    with session("two", master) as spark:
        names = "spark.sql.session.timeZone", "spark.log.level", "spark.ui.showConsoleProgress"
        print(spark.sparkContext.master, *map(spark.conf.get, names))
"""


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(300)
def test_spark_defaults_say_where_a_job_runs_and_how_unless_the_job_does(tmp_path: Path) -> None:
    settings = {"spark.master": "local[1]", "spark.sql.session.timeZone": "Asia/Tokyo"}
    own = quick_spark(tmp_path / "conf", **settings)

    done = subprocess.run(
        [sys.executable, "-c", SETTINGS_OF_TWO], env={**os.environ, **own}, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["local[1] Asia/Tokyo ERROR false", "local[2] Asia/Tokyo ERROR false"]
