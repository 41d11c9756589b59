"""The only command: finds a database, publishes the files, processes the messages, and prints the results."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pipeline
from pyspark.sql import SparkSession

from pgrouse import Client, migrate, testing

HERE = Path(__file__).parent


@contextmanager
def database() -> Iterator[str]:
    """Use the database of $DATABASE_URL, else a new one that is dropped at the end."""
    if given := os.environ.get("DATABASE_URL"):
        migrate(given)
        yield given
        return
    with testing.database() as made:
        yield made


@contextmanager
def spark() -> Iterator[SparkSession]:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # for the Python processes that Spark starts
    builder = SparkSession.builder.appName("readings").config("spark.sql.session.timeZone", "UTC")
    session = builder.config("spark.sql.redaction.options.regex", "(?i)url|dsn").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()


def main() -> None:
    folder = Path(os.environ.get("OUTPUT", HERE / "output")).absolute()
    with database() as dsn, spark() as session:
        with Client(dsn) as queue:  # a batch whose worker is killed is tried again
            queue.set_policy(pipeline.TOPIC, max_attempts=3)
        for file in sorted((HERE / "readings").glob("*.jsonl")):
            print(f"{file.name}: {pipeline.publish(session, dsn, file)} messages", flush=True)
        pipeline.work(session, dsn, folder)
        for row in pipeline.averages(session, folder).collect():
            print(f"{row.day} {row.sensor}: {row.celsius} °C")
        for row in pipeline.results(session, dsn).collect():
            print(f"{row['result']}: {row['count']} messages")


if __name__ == "__main__":
    main()
