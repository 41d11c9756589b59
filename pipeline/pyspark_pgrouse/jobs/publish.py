"""`pgrouse pipeline publish`: publishes the rows of files or of a table."""

from __future__ import annotations

import sys
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from pgrouse.errors import ConfigError, ExitCode, PgrouseError
from pgrouse.terminal.command import CliSession, Command
from pgrouse.terminal.table import Column
from pgrouse.values.format import plural
from pyspark_pgrouse.connection.connection import connect
from pyspark_pgrouse.connection.queue_dsn import dsn_of, schema_of
from pyspark_pgrouse.java import java_home
from pyspark_pgrouse.jobs.job_options import spark_options
from pyspark_pgrouse.jobs.run_metrics import RunReport, record_run
from pyspark_pgrouse.publish import columns as publish_columns
from pyspark_pgrouse.publish.job import JobResult, job_result, rejected, rejected_rows
from pyspark_pgrouse.publish.preview import preview
from pyspark_pgrouse.publish.source import Format, PublishSource, exists
from pyspark_pgrouse.publish.stage import check_usable
from pyspark_pgrouse.session import session as spark_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SHOWN = 5  # rejected rows that are printed
BAR = {"spark.ui.showConsoleProgress": "true"}


@click.command(cls=Command)
@click.argument("paths", nargs=-1, metavar="[PATH...]")
@click.option("--table", metavar="NAME", help="Publish the rows of this table instead of files.")
@click.option(
    "--format",
    "format_",
    type=click.Choice([each.value for each in Format]),
    default=Format.JSON.value,
    show_default=True,
    help="The format of the files. json: one object per line.",
)
@click.option("--topic", help="Publish all rows to this topic. Default: the topic is in the column topic.")
@click.option(
    "--row-as-payload",
    "whole",
    is_flag=True,
    help="Use each whole row as a payload. Default: the columns are those of a message.",
)
@click.option(
    "--job",
    metavar="KEY",
    help="The key under which this is published only once. Default: made of the paths, sizes and times of the files.",
)
@click.option("--max-rejected", type=click.IntRange(0), help="Publish nothing if more rows than this are rejected.")
@click.option(
    "--rejected", "rejected_to", metavar="DIR", help="Write the rejected rows to a new directory, as Parquet."
)
@click.option(
    "--dry-run", is_flag=True, help="Publish nothing; print what would be published, and what would be rejected."
)
@spark_options
@click.pass_obj
def publish(
    session: CliSession,
    /,
    paths: tuple[str, ...],
    table: str | None,
    format_: str,
    topic: str | None,
    whole: bool,
    job: str | None,
    max_rejected: int | None,
    rejected_to: str | None,
    dry_run: bool,
    master: str | None,
    conf: dict[str, str],
) -> int:
    """Publish the rows of files or of a table.

    All messages become visible at the same moment, and only once: if you publish the same files again, nothing is
    published. Rows that cannot be published are rejected, each with its reason; the others are still published.
    """
    if bool(paths) == bool(table):
        raise click.UsageError("name what to publish: either paths, or --table")
    if whole and topic is None:
        raise click.UsageError("--row-as-payload needs --topic: the rows have no column for it")
    source = PublishSource(paths, table, Format(format_), whole, topic)
    dsn = dsn_of(session.config.database)
    java_home()
    if not dry_run:
        with connect(dsn) as conn:
            check_usable(conn)
    with spark_session("publish", master, (BAR if sys.stderr.isatty() else {}) | conf) as spark:
        rows = source.read(spark)
        if dry_run:
            return _preview(session, rows, topic)
        if rejected_to is not None and exists(spark, rejected_to):
            raise ConfigError(f"--rejected {rejected_to} exists already: name a new directory")
        key = job or source.key(spark, rows) or f"table/{uuid4()}"
        done = _publish(rows, dsn, key, topic, max_rejected)
        if rejected_to is not None and done.rejected:
            rejected(spark, key, dsn).write.parquet(rejected_to)
    return _conclude(session, dsn, key, done)


def _publish(rows: DataFrame, dsn: str | None, job: str, topic: str | None, max_rejected: int | None) -> JobResult:
    before = job_result(dsn, job)
    if before is not None:
        return before
    options = {
        "dsn": dsn or None,
        "schema": schema_of(dsn).name,
        "job": job,
        "topic": topic,
        "maxRejected": max_rejected,
    }
    given = {name: value for name, value in options.items() if value is not None}
    rows.write.format("pgrouse").options(**given).mode("append").save()
    done = job_result(dsn, job)
    if done is None:
        raise PgrouseError(f"job {job} was not published")
    # The key was free a moment ago: if another process took it in the meantime, that process published the same.
    return JobResult(**asdict(done) | {"is_repeat": False})


def _conclude(session: CliSession, dsn: str | None, job: str, done: JobResult) -> int:
    record_run(RunReport(rows=0 if done.is_repeat else done.published))
    if session.as_json:
        session.record({"job": job, **asdict(done)})
    if done.is_repeat:
        session.say(f"published before, as job {job}: nothing was published now; --job NAME publishes it again")
    else:
        session.say(f"published {plural(done.published, 'message')} as job {job}")
    for count, what in (
        (done.ignored, "ignored: their keys wait already"),
        (done.dropped, "dropped: their topics are full"),
    ):
        if count:
            session.note(f"{plural(count, 'row')} {what}")
    if not done.rejected:
        return ExitCode.OK
    session.problem(f"{plural(done.rejected, 'row')} rejected; the first:")
    for nth, reason, given in _first(dsn, job):
        session.note(f"  {nth}: {reason}: {given:.200}")
    return ExitCode.FOUND_A_PROBLEM


def _first(dsn: str | None, job: str) -> list[tuple[int, str, str]]:
    return [row for row, _ in zip(rejected_rows(dsn, job, SHOWN), range(SHOWN), strict=False)]


def _preview(session: CliSession, rows: DataFrame, topic: str | None) -> int:
    publish_columns.check(rows.schema, topic)
    groups = _preview_groups(rows, topic)
    columns = [
        Column("TOPIC", "topic", wide=True),
        Column("ROWS", "rows", "{:,}".format, right=True),
        Column("REJECTED BECAUSE", "reason", folds=True),
    ]
    session.rows(columns, groups, "no rows: nothing would be published")
    good = sum(group["rows"] for group in groups if group["reason"] is None)
    session.say(f"would publish {plural(good, 'message')}: run it again without --dry-run")
    return ExitCode.FOUND_A_PROBLEM if any(group["reason"] for group in groups) else ExitCode.OK


def _preview_groups(rows: DataFrame, topic: str | None) -> list[dict[str, Any]]:
    """Return how many rows of each topic would be published, and why others would not.

    The answer is as far as it is known without the database.
    """
    found = rows.mapInArrow(partial(preview, topic), "topic STRING, reason STRING").groupBy("topic", "reason").count()
    return [
        {"topic": row["topic"], "rows": row["count"], "reason": row["reason"]}
        for row in found.orderBy("topic", "reason").collect()
    ]
