"""Runs work on executors: each part of it is a task, and the results of tasks come back to the driver."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from pgrouse.errors import ConfigError, DatabaseUnreachable, ExitCode, PgrouseError, SchemaMismatch
from pyspark_pgrouse.lake.directory import LakeUnwritable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

P = TypeVar("P")
R = TypeVar("R")
# The errors that tasks raise on purpose.
KINDS = {kind.__name__: kind for kind in (LakeUnwritable, ConfigError, DatabaseUnreachable, SchemaMismatch)}
# The form of such an error in the last line of a traceback.
PGROUSE_ERROR = re.compile(r"^(?:pgrouse\.errors|pyspark_pgrouse[\w.]+)\.(\w+): (.+)$", re.MULTILINE)

# The modules that a Python without pgrouse[spark] lacks, or that there is no Python at all.
MISSING_MODULE = re.compile(
    r"ModuleNotFoundError: No module named '((?:pyspark_pgrouse|pgrouse|pyspark|pyarrow|psycopg|adbc_driver_\w+)(?:\.[\w.]+)?)'"
)
NO_PYTHON = re.compile(r'Cannot run program "([^"]*python[^"]*)"')
# Spark waits for 10 s, which cannot be changed.
OVERLOADED = "Python worker failed to connect back"
CRASHED = "Python worker exited unexpectedly"
INSTALL_HINT = "pip install 'pgrouse[spark]' there, or name by PYSPARK_PYTHON the one that has it"


class SparkOverloaded(PgrouseError):
    """The machine is too busy for Spark."""

    exit_code = ExitCode.TRY_AGAIN


class PythonWorkerCrashed(PgrouseError):
    """The process of a task has ended before the task did."""

    exit_code = ExitCode.TRY_AGAIN


def on_executors(spark: SparkSession, work: Callable[[P], R], parts: Sequence[P]) -> list[R]:
    """Do the work on every part, each in a separate task; return the results in the order of the parts.

    Raises:
        PgrouseError: the last error of a task, after Spark has made all of its tries. Other errors are raised
            unchanged.
    """
    if not parts:
        return []
    context = spark.sparkContext
    # Inside a task the parts might exceed spark.rpc.message.maxSize; inside the function they would stay on the
    # driver's disk.
    shared = context.broadcast(parts)
    try:
        # A DataFrame would take 25 ms longer, because Spark plans it in each call.
        numbers = context.parallelize(range(len(parts)), len(parts))
        return numbers.map(lambda number: work(shared.value[number])).collect()
    except (PySparkException, Py4JJavaError) as error:
        raise pgrouse_error(str(error)) or error from None
    finally:
        with suppress(Py4JError, OSError):  # Spark is gone
            shared.destroy()


def task_slots(spark: SparkSession) -> int:
    """Return how many tasks the executors run at a time.

    This is not `defaultParallelism`, which is at least 2 on a cluster, even with one core, or whatever the user has
    set.
    """
    context = spark.sparkContext._jsc.sc()  # noqa: SLF001 - Spark's Python has no other way to ask
    return max(1, int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile())))


def pgrouse_error(text: str) -> PgrouseError | None:
    """Return the error that a task raised, if pgrouse raises it on purpose.

    Otherwise return an error about what the Python of executors lacks.
    """
    if found := PGROUSE_ERROR.findall(text):
        name, said = found[-1]
        return KINDS.get(name, PgrouseError)(said)
    if absent := MISSING_MODULE.search(text):
        return ConfigError(f"the Python of Spark's executors has no module {absent[1]}: {INSTALL_HINT}")
    if OVERLOADED in text:
        return SparkOverloaded(
            "Spark's Python process did not start within 10 s: the machine is too busy: run it again"
        )
    if CRASHED in text:
        return PythonWorkerCrashed(
            "a Python process of Spark's executors has ended (killed? out of memory?): run it again"
        )
    if program := NO_PYTHON.search(text):
        return ConfigError(f"Spark's executors have no Python {program[1]}: {INSTALL_HINT}")
    return None
