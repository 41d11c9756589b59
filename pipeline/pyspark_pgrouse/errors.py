"""The errors of Spark's tasks, which Spark reports as text.

Some of them pgrouse raises on purpose; the others have a meaning.
"""

from __future__ import annotations

import re

from pgrouse.errors import (
    ConfigError,
    DatabaseUnreachable,
    ExitCode,
    PgrouseError,
    PublishRateExceeded,
    PublishRejected,
    SchemaMismatch,
    TopicFull,
)

# The form of such an error in the last line of a traceback.
PGROUSE_ERROR = re.compile(r"^(?:pgrouse\.errors|pyspark_pgrouse[\w.]+)\.(\w+): (.+)$", re.MULTILINE)

# The modules that a Python without pgrouse[spark] lacks, or that there is no Python at all.
MISSING_MODULE = re.compile(
    r"ModuleNotFoundError: No module named "
    r"'((?:pyspark_pgrouse|pgrouse|pyspark|pyarrow|psycopg|adbc_driver_\w+)(?:\.[\w.]+)?)'"
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


class LakeUnwritable(PgrouseError):
    """The lake could not be read or written, for a reason outside of it. Committed data has not changed."""

    exit_code = ExitCode.TRY_AGAIN


class StageLost(PublishRejected):
    """Staged rows no longer exist: nothing was published, and the job can be run again."""

    sqlstate = "PGR06"
    exit_code = ExitCode.TRY_AGAIN


class TooManyRejected(PublishRejected):
    """More rows than allowed cannot be published: nothing was published."""

    sqlstate = "PGR07"


class ServerFull(PgrouseError):
    """The server has no room left: nothing was published, and the job can be run again."""

    exit_code = ExitCode.TRY_AGAIN


# The errors that tasks raise on purpose, by the SQLSTATE of the server or by another cause.
REJECTED = (TopicFull, PublishRateExceeded, StageLost, TooManyRejected)
KINDS: dict[str, type[PgrouseError]] = {
    kind.__name__: kind
    for kind in (*REJECTED, ConfigError, DatabaseUnreachable, LakeUnwritable, SchemaMismatch, ServerFull)
}


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
