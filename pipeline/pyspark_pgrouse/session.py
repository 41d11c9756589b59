"""The Spark session of a job."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from pgrouse.errors import ConfigError, ExitCode, PgrouseError
from pyspark_pgrouse.errors import pgrouse_error
from pyspark_pgrouse.java import java_home

# The settings of a job, unless the cluster or the command line sets others.
WANTED = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Over TCP, each Python task waits 45 ms for an acknowledgement. The path of a socket must be short, and the folder
    # of a job may be too long.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.unix.domain.socket.dir": "/tmp",  # noqa: S108 - with random names, for this user only
    # Plans show the options of CREATE TEMPORARY VIEW ... USING; Spark hides the options that match this (its default:
    # url).
    "spark.sql.redaction.options.regex": "(?i)url|dsn",
}
# Settings on one machine, where no one uses Spark's pages, and what Spark warns of is usual.
LOCAL = {
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
# Spark draws its progress bars into every file, and over those of a job.
BARS = "spark.ui.showConsoleProgress"
LOG_CONFIG = Path(__file__).with_name("log4j2.properties")
CONNECT_REFUSED = (
    "this job needs a Spark session with a JVM of its own, and this one is a client of Spark Connect: "
    "unset SPARK_REMOTE, "
    "and name the cluster by --master (spark://..., yarn, k8s://...)"
)


class SparkEnded(PgrouseError):
    """Spark's JVM has ended or is ending."""

    exit_code = ExitCode.TRY_AGAIN

    def __init__(self) -> None:
        super().__init__(
            "Spark's JVM has ended (killed? out of memory: --conf spark.driver.memory=4g gives it more): run it again"
        )


@contextmanager
def session(name: str, master: str | None = None, conf: dict[str, str] | None = None) -> Iterator[SparkSession]:
    """Open the session of a job, and close it at the end if it was opened here.

    Args:
        name: the name on Spark's pages: `pgrouse <name>`.
        master: `spark://…`, `local[2]`; None = spark.master of `conf`, of spark-submit, SPARK_MASTER, or spark.master
            of spark-defaults.conf, otherwise all cores of this machine.
        conf: more settings of Spark; they override the others, which override spark-defaults.conf.

    Raises:
        ConfigError: there is no Java that Spark runs on, or no pgrouse in the Python of its executors; or the session
            is one of Spark Connect.
        SparkEnded: Spark's JVM was gone when something failed.
    """
    refuse_connect()
    if (home := java_home()) is not None:
        os.environ["JAVA_HOME"] = home
    # Executors on this machine run the same Python; if those of a cluster have it elsewhere, PYSPARK_PYTHON names it.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    logging.getLogger().addFilter(_is_no_echo)
    before = SparkSession.getActiveSession()
    spark = before or _build(name, master, conf or {})
    try:
        with translated_errors(spark):
            yield spark
    finally:
        if before is None:
            _stop(spark)


@contextmanager
def translated_errors(spark: SparkSession) -> Iterator[None]:
    """Convert an error of Spark to an error of pgrouse, if a task raised it on purpose or the JVM is gone."""
    try:
        yield
    except PgrouseError:
        raise
    except Exception as error:
        check_alive(spark)
        if isinstance(error, PySparkException) and (own := pgrouse_error(str(error))):
            raise own from None
        raise


def refuse_connect() -> None:
    """Check that this process is not a client of Spark Connect.

    Raises:
        ConfigError: it is.
    """
    if is_remote() or "SPARK_REMOTE" in os.environ:
        raise ConfigError(CONNECT_REFUSED)


def check_alive(spark: SparkSession) -> None:
    """Check that Spark still runs.

    Raises:
        SparkEnded: it does not.
    """
    try:
        java = spark.sparkContext._jsc  # noqa: SLF001 - Spark has no other way to ask
        is_over = java is None or java.sc().isStopped()
    except (Py4JNetworkError, OSError):
        is_over = True
    if is_over:
        raise SparkEnded from None


def _is_no_echo(record: logging.LogRecord) -> bool:
    """Whether to log this: py4j logs a traceback of each connection that breaks, and also raises the error."""
    return f"{os.sep}py4j{os.sep}" not in record.pathname


def _stop(spark: SparkSession) -> None:
    with suppress(Py4JNetworkError, OSError):  # it is gone already
        spark.stop()


def _build(name: str, master: str | None, conf: dict[str, str]) -> SparkSession:
    where = {} if master is None else {"spark.master": master}
    settled = _settled(conf | where)
    is_local = settled.get("spark.master", "").startswith("local")
    for key, value in (WANTED | (LOCAL if is_local else {})).items():
        settled.setIfMissing(key, value)
    if is_local or not sys.stderr.isatty():
        # It is never missing: Spark takes a job for a shell, and sets it.
        settled.set(BARS, conf.get(BARS, "false"))
    builder = SparkSession.builder.config(conf=settled.setAppName(f"pgrouse {name}"))
    made: SparkSession = builder.getOrCreate()
    _quieten_accumulators(made)
    return made


def _settled(given: dict[str, str]) -> SparkConf:
    """Start Spark's JVM, unless spark-submit did, and return its settings, overridden by these.

    Only the JVM knows what spark-defaults.conf and spark-submit say.
    """
    # The JVM logs before it reads any setting; a user's own log4j2 file overrides this.
    options = f'"-Dlog4j2.configurationFile={LOG_CONFIG.as_uri()}"'
    os.environ["SPARK_SUBMIT_OPTS"] = f"{options} {os.environ.get('SPARK_SUBMIT_OPTS', '')}".strip()
    elsewhere = {"spark.master": master} if (master := os.environ.get("SPARK_MASTER")) else {}
    start = SparkConf(loadDefaults=False).setAll([*(elsewhere | given).items()])
    SparkContext._ensure_initialized(conf=start)  # noqa: SLF001 - Spark does it itself, after it has read the settings
    settled = SparkConf().setAll([*given.items()])
    settled.setIfMissing("spark.master", "local[*]")
    return settled


def _quieten_accumulators(spark: SparkSession) -> None:
    """Keep the thread that reads accumulators from printing a traceback when the JVM has ended.

    `session` reports that in one line.
    """
    server = spark.sparkContext._accumulatorServer  # noqa: SLF001 - Spark has no setting for it
    print_error = server.handle_error

    def handle_error(*request: Any) -> None:
        if not isinstance(sys.exception(), (EOFError, OSError)):
            print_error(*request)

    server.handle_error = handle_error  # type: ignore[assignment, method-assign]
