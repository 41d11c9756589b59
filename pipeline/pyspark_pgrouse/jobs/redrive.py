"""`pgrouse pipeline redrive`: redrives the dead messages that match an expression."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

import click
from pyspark.errors import AnalysisException
from pyspark.sql import functions as f

from pgrouse.client.calls import dead
from pgrouse.client.redrive import REDRIVEN_OUTCOMES, RateSpreader
from pgrouse.errors import ConfigError, ExitCode
from pgrouse.terminal.bulk import DELAY, RATE, redrive_in_batches, report
from pgrouse.terminal.command import CliSession, Command
from pgrouse.terminal.table import Column
from pgrouse.values.format import plural, show_ago
from pyspark_pgrouse.connection.queue_dsn import dsn_of, schema_of
from pyspark_pgrouse.java import java_home
from pyspark_pgrouse.jobs.job_options import spark_options
from pyspark_pgrouse.jobs.run_metrics import RunReport, record_run
from pyspark_pgrouse.lake.lake import Lake
from pyspark_pgrouse.read.position import queue_identifier
from pyspark_pgrouse.schema import ARCHIVE
from pyspark_pgrouse.session import session as spark_session

if TYPE_CHECKING:
    import psycopg
    from pyspark.sql import DataFrame, SparkSession

PAGE = 10_000  # ids that the driver holds at once
DEAD = "result NOT IN ('success', 'cancelled')"
SHOWN = ("id", "topic", "result", "error", "error_fingerprint", "archived_at")
GROUPS = (
    "count(*) AS messages",
    "min(archived_at) AS oldest",
    "min_by(id, struct(archived_at, id)) AS sample_id",
    "min_by(substring_index(trim(error), '\\n', -1), struct(archived_at, id)) AS sample_error",
)


@click.command(cls=Command)
@click.option(
    "--where",
    required=True,
    metavar="SQL",
    help="The expression, in Spark's SQL over the columns of the archive, like \"topic = 'orders' AND error LIKE "
    "'%timeout%'\".",
)
@click.option(
    "--lake", metavar="DIR", help="Search in this lake, without a load on the database. Default: in the database."
)
@click.option("--limit", type=click.IntRange(1), help="The maximum number, the oldest first.")
@RATE
@DELAY
@click.option("--force", is_flag=True, help="Also those that were redriven max_redrives times already.")
@click.option("--dry-run", is_flag=True, help="Redrive nothing; print what was found, by topic and kind of error.")
@spark_options
@click.pass_obj
def redrive(
    session: CliSession,
    /,
    where: str,
    lake: str | None,
    limit: int | None,
    rate: float | None,
    delay: timedelta,
    force: bool,
    dry_run: bool,
    master: str | None,
    conf: dict[str, str],
) -> int:
    """Redrive the dead messages that match an expression, like "topic = 'orders' AND error LIKE '%timeout%'".

    Spark only finds them: the database decides about each, and redrives it once, however often this is run or
    interrupted.
    """
    java_home()
    with ExitStack() as scope:
        conn = scope.enter_context(session.connect())
        found = None if lake is None else _own_lake(conn, lake)
        spark = scope.enter_context(spark_session("redrive", master, conf))
        chosen = _chosen(_dead(spark, found, dsn_of(session.config.database), where), where, limit)
        if dry_run:
            return _preview(session, chosen)
        return _put_back(session, conn, chosen, RateSpreader(rate, delay), force=force)


def _own_lake(conn: psycopg.Connection, url: str) -> Lake:
    lake, here = Lake.open(url), queue_identifier(conn)
    if lake.info.queue != here:
        raise ConfigError(
            f"the lake {url} is of another queue ({lake.info.queue}; this one is {here}): "
            "its ids are other messages here"
        )
    return lake


def _dead(spark: SparkSession, lake: Lake | None, dsn: str | None, where: str) -> DataFrame:
    if lake is not None:
        return lake.read(spark).where(DEAD)
    reader = spark.read.format("pgrouse").option("mode", "dead").option("columns", ",".join(_needed(where)))
    return (reader.option("dsn", dsn) if dsn else reader).option("schema", schema_of(dsn).name).load()


def _needed(where: str) -> list[str]:
    """Return the columns that the expression may use, and those that are shown.

    Only these are read, because payloads are large.
    """
    text = where.lower()
    return [each.name for each in ARCHIVE if "*" in text or each.name in text or each.name in SHOWN]


def _chosen(dead: DataFrame, where: str, limit: int | None) -> DataFrame:
    """Return the matching messages, the oldest first.

    Raises:
        ConfigError: it is not an expression, or it names columns that do not exist.
    """
    try:
        chosen = dead.where(where)
    except AnalysisException as error:
        raise ConfigError(f"--where {where}: {error.getMessage() or error}") from error
    oldest = chosen.select(*SHOWN).orderBy("archived_at", "id")
    return oldest if limit is None else oldest.limit(limit)


def _pages(chosen: DataFrame) -> Iterator[list[int]]:
    ids = (row["id"] for row in chosen.select("id").toLocalIterator())
    while page := list(islice(ids, PAGE)):
        yield page


def _put_back(
    session: CliSession, conn: psycopg.Connection, chosen: DataFrame, spreader: RateSpreader, *, force: bool
) -> int:
    rows = redrive_in_batches(conn, dead.redrive, _pages(chosen), spreader, force=force)
    outcomes = report(session, rows, "archived_id", by_id=False)
    done = sum(outcomes[outcome] for outcome in REDRIVEN_OUTCOMES)
    record_run(RunReport(rows=done))
    session.say(f"redrove {plural(done, 'message')}" if outcomes else "no dead message matches: nothing was redriven")
    return ExitCode.OK


def _preview(session: CliSession, chosen: DataFrame) -> int:
    groups = chosen.groupBy("topic", "result", "error_fingerprint").agg(*map(f.expr, GROUPS))
    now = datetime.now(UTC)
    rows = [_group(row.asDict(), now) for row in groups.orderBy("topic", "result", "error_fingerprint").collect()]
    columns = [
        Column("TOPIC", "topic", wide=True),
        Column("RESULT", "result"),
        Column("MESSAGES", "messages", "{:,}".format, right=True),
        Column("OLDEST", "oldest", show_ago),
        Column("FINGERPRINT", "error_fingerprint"),
        Column("SAMPLE", "sample_id", right=True),
        Column("ERROR", "sample_error", wide=True),
    ]
    session.rows(columns, rows, "no dead message matches: nothing would be redriven")
    if rows:
        total = sum(row["messages"] for row in rows)
        session.say(f"chose {plural(total, 'message')}: run it again without --dry-run")
    return ExitCode.OK


def _group(row: dict[str, Any], now: datetime) -> dict[str, Any]:
    return row | {"oldest": now - row["oldest"].astimezone(UTC)}
