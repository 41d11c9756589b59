"""The session of a job: what is wrong with Java, with the Python of executors, and what is said when Spark has gone."""

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
from pyspark_pgrouse.executors import pgrouse_error
from pyspark_pgrouse.session import SparkEnded, session
from tests.server.postgres import Database
from tests.sql.queue import Queue

ENDED = "Spark's JVM has ended (killed? out of memory: --conf spark.driver.memory=4g gives it more): run it again"


class Running:
    """A session, as far as it is asked whether Spark is there.

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
def test_an_error_without_spark_says_that_spark_has_gone_and_to_try_again(
    monkeypatch: pytest.MonkeyPatch, is_stopped: Callable[[], bool]
) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: Running(is_stopped))

    with pytest.raises(SparkEnded) as raised, session("t"):
        raise ConnectionRefusedError(111, "Connection refused")

    assert str(raised.value) == ENDED
    assert raised.value.exit_code is ExitCode.TRY_AGAIN


@pytest.mark.parametrize("error", [ConnectionRefusedError(111, "Connection refused"), ValueError("any")])
def test_an_error_while_spark_is_there_stays_what_it_is(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: Running(lambda: False))

    with pytest.raises(type(error)) as raised, session("t"):
        raise error

    assert raised.value is error


def test_an_error_of_the_database_is_told_though_spark_has_gone_too(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_a_job_whose_jvm_is_killed_in_a_batch_says_so_in_one_line_and_ends_with_75(
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


@pytest.mark.parametrize("module", ["pyspark_pgrouse", "pgrouse", "pyarrow", "psycopg", "adbc_driver_postgresql"])
def test_an_executor_without_pgrouse_is_one_line_that_says_what_to_install(module: str) -> None:
    trace = f"""Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times
  File "/spark/python/lib/pyspark.zip/pyspark/worker.py", line 2044, in read_command
ModuleNotFoundError: No module named '{module}'

\tat org.apache.spark.api.python.BasePythonRunner
"""

    error = pgrouse_error(trace)

    assert isinstance(error, ConfigError)
    assert str(error) == (
        f"the Python of Spark's executors has no module {module}: pip install 'pgrouse[spark]' there, "
        "or name by PYSPARK_PYTHON the one that has it"
    )


def test_a_module_of_the_users_that_is_absent_is_no_error_of_ours() -> None:
    assert pgrouse_error("ModuleNotFoundError: No module named 'pgrouse_shop'") is None
    assert pgrouse_error("ModuleNotFoundError: No module named 'shop'") is None


def test_executors_without_that_python_are_told_of_in_one_line() -> None:
    error = pgrouse_error('java.io.IOException: Cannot run program "/opt/venv/bin/python3.11": error=2, No such file')

    assert isinstance(error, ConfigError)
    assert str(error).startswith("Spark's executors have no Python /opt/venv/bin/python3.11: ")


def test_a_machine_that_is_too_busy_for_sparks_python_is_a_reason_to_try_again() -> None:
    error = pgrouse_error("org.apache.spark.SparkException: Python worker failed to connect back.")

    assert error is not None
    assert error.exit_code is ExitCode.TRY_AGAIN
    assert "did not start within 10 s" in str(error)


def test_an_error_of_spark_that_is_one_of_ours_is_told_wherever_it_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_java_home_that_is_not_there_is_named_though_there_is_a_java_on_the_path(
    javas: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setenv("PATH", str(javas("good", "17.0.15") / "bin"))

    with pytest.raises(ConfigError) as refused:
        java.java_home()

    assert str(refused.value).startswith("JAVA_HOME is /nowhere, and there is no Java that runs in it: ")
    assert "unset it" in str(refused.value)
    assert "Java 0" not in str(refused.value)


def test_a_java_that_is_too_old_is_told_with_its_version(
    javas: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(javas("old", "11.0.2")))

    with pytest.raises(ConfigError, match=r"Spark needs Java 17 or newer, but .*/old/bin/java is Java 11"):
        java.java_home()


def test_without_a_java_home_the_one_on_the_path_is_taken(
    javas: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(javas("good", "17.0.15") / "bin"))

    assert java.java_home() is None


def test_no_java_anywhere_says_what_to_install(javas: Callable[[str, str], Path]) -> None:
    with pytest.raises(ConfigError, match="Spark needs Java, but there is none in JAVA_HOME or on PATH"):
        java.java_home()
