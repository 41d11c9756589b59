"""Fixtures for the tests of the pipeline: one Spark for all of them, and the queue of the SQL tests."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pyspark_pgrouse.session import session
from tests.pipeline.quick_spark import SETTINGS
from tests.sql.conftest import (
    background,
    database,
    empty_shared_database,
    other,
    own_database,
    own_queue,
    third,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "background",
    "database",
    "empty_shared_database",
    "other",
    "own_database",
    "own_queue",
    "third",
]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark with two threads, which retries a failed task once (plain local[2] never does)."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = SETTINGS | {
        "spark.driver.memory": "1g",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.local.dir": str(tmp_path_factory.mktemp("spark")),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # py4j leaves sockets to the garbage collector
        with session("tests", "local[2,2]", conf) as spark:
            yield spark
