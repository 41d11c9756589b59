"""`pgrouse pipeline report`: writes tables and one HTML page about a period of time."""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from pgrouse.config.duration import parse
from pgrouse.terminal.command import CliSession, Command
from pgrouse.terminal.param_types import DURATION, NAMES, TIMESTAMP
from pgrouse.terminal.progress_bar import ProgressBar
from pgrouse.values.format import plural
from pyspark_pgrouse.connection.queue_dsn import dsn_of
from pyspark_pgrouse.jobs.job_options import measured_options
from pyspark_pgrouse.jobs.run_metrics import RunReport, record_run
from pyspark_pgrouse.report.build import STAGES, ReportRequest, build_report
from pyspark_pgrouse.report.destination import Destination
from pyspark_pgrouse.report.slo import Slo
from pyspark_pgrouse.report.source import DatabaseSource, LakeSource
from pyspark_pgrouse.report.window import Window

if TYPE_CHECKING:
    from pyspark_pgrouse.report.findings import Findings
    from pyspark_pgrouse.report.source import ArchiveSource


class PastTimeType(click.ParamType[datetime]):
    """A point in time in ISO 8601 with its zone, or how long ago it was: `24h`."""

    name = "when"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Read it."""
        try:
            return datetime.now(UTC) - parse(value)
        except ValueError:
            pass
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            self.fail(
                f'expected a time ago like "24h", or a time with its zone like "2026-11-20T10:00Z", found {value!r}',
                param,
                ctx,
            )
        return moment.astimezone(UTC)


class SloType(click.ParamType[Slo]):
    """A service level objective."""

    name = "slo"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Slo:
        """Read it."""
        try:
            return value if isinstance(value, Slo) else Slo.parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command(cls=Command)
@click.option(
    "--out", required=True, metavar="DIR", help="The output directory, for report.html and the folder tables/."
)
@click.option("--lake", metavar="URL", help="Read a lake: a Delta table. Default: the archive in the database.")
@click.option(
    "--since",
    type=PastTimeType(),
    default="24h",
    show_default=True,
    help="The beginning: a time with its zone, or how long ago.",
)
@click.option("--until", type=PastTimeType(), default="0s", show_default="now", help="The end.")
@click.option("--topics", type=NAMES, default=(), metavar="A,B", help="Only these topics.")
@click.option("--baseline", type=DURATION, help="Compare with a period of this length before --since.")
@click.option(
    "--deploy", type=TIMESTAMP, help="Compare messages that ended from this time on with those that ended before it."
)
@click.option(
    "--slo",
    "slos",
    type=SloType(),
    multiple=True,
    help='A service level objective: "99%:5s" for all topics, "mail=99.9%:2s" for one. May be given more than once.',
)
@click.option("--open", "opens", is_flag=True, help="Show the page in the browser.")
@measured_options
@click.pass_obj
def report(
    session: CliSession,
    /,
    out: str,
    lake: str | None,
    topics: tuple[str, ...],
    slos: tuple[Slo, ...],
    opens: bool,
    **times: Any,
) -> None:
    """Write tables and one HTML page about a period of time.

    They show what got slower, what fails more and what costs most, by topic and week, from a lake or from the database.
    """
    window = _window(**times)
    destination = Destination.at(out)
    request = ReportRequest(_source(session, lake, topics), window, tuple(dict.fromkeys(slos)), destination)
    with _stages(session) as began:
        findings = build_report(request, began)
    record_run(RunReport(rows=findings["whole"]["ended"]))
    _say(session, findings, destination)
    if opens and not webbrowser.open(destination.page if "://" in destination.page else f"file://{destination.page}"):
        session.note("no browser could be opened")


def _window(since: datetime, until: datetime, baseline: timedelta | None, deploy: datetime | None) -> Window:
    if since >= until:
        raise click.UsageError(
            f"--since {since.isoformat()} is not before --until {until.isoformat()}: name an earlier time"
        )
    if baseline is not None and deploy is not None:
        raise click.UsageError("--baseline and --deploy are two ways to compare: give one of them")
    if deploy is not None and not since < deploy < until:
        raise click.UsageError(
            f"--deploy {deploy.isoformat()} is not between --since {since.isoformat()} and "
            f"--until {until.isoformat()}: "
            "name an earlier --since"
        )
    if baseline is not None and not baseline:
        raise click.UsageError(
            "--baseline 0s has nothing to compare with: give the length of the time before --since, like 24h"
        )
    if baseline is not None:
        return Window.after_baseline(since, until, baseline)
    return Window(since, until, mark=deploy.astimezone(UTC) if deploy else None)


def _source(session: CliSession, lake: str | None, topics: tuple[str, ...]) -> ArchiveSource:
    if lake is not None:
        return LakeSource.open(lake, topics)
    return DatabaseSource.open(dsn_of(session.config.database), topics)


@contextmanager
def _stages(session: CliSession) -> Iterator[Callable[[str], None]]:
    """Show what is being made: with a bar for people, with lines in logs."""
    if not sys.stderr.isatty():
        yield lambda stage: session.note(f"report: {stage}")
        return
    with ProgressBar("report", len(STAGES)) as bar:
        yield lambda _: bar.advance(1)


def _say(session: CliSession, findings: Findings, destination: Destination) -> None:
    whole, topics = findings["whole"], findings["topics"]
    count = topics[0]["of"] if topics else 0
    session.say(
        f"{plural(whole['ended'], 'message')} ended, {whole['dead']:,} of them dead, "
        f"in {plural(count, 'topic')}: {destination.page}"
    )
    if session.as_json:
        session.record(
            {
                "page": destination.page,
                "tables": {name: destination.table(name) for name in findings["tables"]},
                "since": findings["asked"].since,
                "until": findings["asked"].until,
                "read": findings["read"],
                **{name: whole[name] for name in ("ended", "dead", "failure_rate", "total_p50_s", "total_p99_s")},
                "topics": count,
                "run_s": findings["cost"]["run_s"],
                "new_fingerprints": findings["errors"]["new"] if findings["window"].mark else None,
            }
        )
