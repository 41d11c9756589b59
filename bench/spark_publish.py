"""Measures how fast Spark publishes, compared with Spark's JDBC writer into the same table.

The JDBC writer commits its rows in parts.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bench.figure import Figure, Report, Target
from bench.postgres import SETTINGS, Database, Postgres, free_port
from bench.usage import Machine
from psycopg.conninfo import conninfo_to_dict

from pgrouse import devdb
from pgrouse.devdb.scratch import Scratch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DRIVER = Path("/usr/share/java/postgresql.jar")
PARTITIONS = 4
TOPICS = 20
PAYLOAD = "to_json(struct(id, id % 977 AS customer, repeat('x', 250) AS note)) AS payload"
# A different key for each row.
KEYS = ("CAST(id AS STRING) AS key",)
JDBC = "Spark's JDBC writer, rewriteBatchedInserts"
# The writer commits each partition separately: with a single partition it also commits all rows at once.
JDBC_AT_ONCE = f"{JDBC}, one partition"
OURS = "df.write.format('pgrouse')"


class Reachable(Postgres):
    """A private server that also listens at a port: JDBC cannot use a socket."""

    def _private_server(self) -> str:
        scratch = Scratch("bench")
        self._ends.callback(scratch.remove)
        folder, port = scratch.folder / "server", free_port()
        server = devdb.PrivateServer(self._installation, folder, database="bench", settings=SETTINGS, port=port)
        self._ends.callback(server.remove)
        server.start()
        self._server = server
        return server.dsn(host="127.0.0.1")


def measure(postgres: Postgres, machine: Machine, rounds: int, messages: int, columns: Sequence[str] = ()) -> Report:
    """Publish the same cached rows in both ways, in turn, each time into an empty table; the first round only warms up.

    Args:
        postgres: not used: Spark needs a server with a port.
        machine: tells when the machine is quiet.
        rounds: how many rounds to measure.
        messages: how many rows to publish.
        columns: their columns in addition to a topic and a payload, such as KEYS.
    """
    from pyspark_pgrouse.session import session  # noqa: PLC0415 - the other benchmarks do without Spark

    if not DRIVER.exists():
        raise SystemExit(
            f"spark-publish compares with JDBC, and {DRIVER} is missing: apt-get install libpostgresql-jdbc-java"
        )
    del postgres
    rates: dict[str, list[float]] = defaultdict(list)
    conf = {"spark.jars": str(DRIVER), "spark.driver.memory": "3g"}
    with Reachable() as reachable, reachable.database("spark") as database, session("bench", "local[2]", conf) as spark:
        rows = _rows(spark, messages, columns)
        for number in range(rounds + 1):
            for name, write in WAYS.items():
                rate = _run(reachable, machine, database, lambda write=write: write(rows, database), messages)
                if number > 0:
                    rates[name].append(rate)
    return _report(rates, messages, columns)


def _rows(spark: SparkSession, messages: int, columns: Sequence[str]) -> DataFrame:
    ids = spark.range(0, messages, 1, PARTITIONS)
    rows = ids.selectExpr(f"concat('topic', id % {TOPICS}) AS topic", PAYLOAD, *columns).cache()
    rows.count()
    return rows


def _by_jdbc(rows: DataFrame, database: Database) -> None:
    at = conninfo_to_dict(database.dsn)
    url = (
        f"jdbc:postgresql://{at['host']}:{at['port']}/{at['dbname']}?reWriteBatchedInserts=true&stringtype=unspecified"
    )
    known = {"user": at["user"], "password": at.get("password", "")}
    options = {
        "url": url,
        "dbtable": "messages.message",
        "batchsize": "5000",
        "driver": "org.postgresql.Driver",
        **known,
    }
    rows.write.format("jdbc").options(**options).mode("append").save()


def _by_jdbc_at_once(rows: DataFrame, database: Database) -> None:
    _by_jdbc(rows.coalesce(1), database)


def _by_us(rows: DataFrame, database: Database) -> None:
    rows.write.format("pgrouse").option("dsn", database.dsn).mode("append").save()


WAYS = {JDBC: _by_jdbc, JDBC_AT_ONCE: _by_jdbc_at_once, OURS: _by_us}


def _run(postgres: Postgres, machine: Machine, database: Database, write: Callable[[], None], messages: int) -> float:
    """Write into an empty table; return rows per second."""
    with database.connect() as conn:
        conn.execute("TRUNCATE messages.message")
        postgres.checkpoint()
        machine.wait_until_quiet()
        began = time.monotonic()
        write()
        took = time.monotonic() - began
        if conn.execute("SELECT count(*) FROM messages.message").fetchone() != (messages,):
            raise SystemExit("not all rows were published")
    return messages / took


def _report(rates: dict[str, list[float]], messages: int, columns: Sequence[str]) -> Report:
    jdbc, at_once = (Figure(name, "rows/s", rates[name]) for name in (JDBC, JDBC_AT_ONCE))
    ours = Figure(OURS, "rows/s", rates[OURS], at_once, Target(1.0, at_least=True))
    kind = "with a key each, " if columns else ""
    about = (
        f"{messages:,} cached rows of a topic and a payload of some 300 bytes, {kind}{PARTITIONS} partitions on "
        "local[2], in turn, after one round "
        "that warms up. Ours become visible at one moment, and so do those of JDBC from one partition; "
        "from four it shows them piece by piece."
    )
    return Report(
        "spark-publish-keys" if columns else "spark-publish", about, [jdbc, at_once, ours, replace(ours, limit=jdbc)]
    )
