"""Runs work on executors: each part of it is a task, and the results of tasks come back to the driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from pyspark_pgrouse.errors import pgrouse_error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

P = TypeVar("P")
R = TypeVar("R")


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
