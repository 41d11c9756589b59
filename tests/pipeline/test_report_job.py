"""`pgrouse pipeline report`, as a user runs it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest

from tests.cli.shell import Shell
from tests.pipeline.findings import HOSTILE
from tests.server.postgres import Database
from tests.sql.queue import Queue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LATER = "UPDATE messages.message_archive SET archived_at = archived_at - %s::interval WHERE id = ANY (%s)"


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Shell:
    """`shell("pipeline", "report", …)` runs a command in an empty directory; no database is named."""
    monkeypatch.chdir(tmp_path)
    for name in os.environ:
        if name.startswith(("PG", "DATABASE_URL")):
            monkeypatch.delenv(name)
    return Shell(monkeypatch, capsys)


@pytest.fixture
def report(shell: Shell, database: Database, monkeypatch: pytest.MonkeyPatch) -> Callable[..., object]:
    """`report(…)` reports on the test's database into the folder `out`."""
    monkeypatch.setenv("PGROUSE_DSN", database.dsn)
    return lambda *arguments: shell("pipeline", "report", "--out", "out", *arguments)


def ended(queue: Queue, topic: str, ago: str, error: str | None = None) -> int:
    """Publish a message, process it, and let it end the given time ago; return its id."""
    published = queue.publish(topic, channel="c")
    (claimed,) = queue.claim(topic)
    if error is None:
        queue.settle("complete", [claimed], [None])
    else:
        queue.settle("fail", [claimed], [error])
    queue.conn.execute(LATER, [ago, [published]])
    return published


@pytest.mark.spark
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")
def test_a_report_on_the_database_has_readable_tables_and_a_page(
    spark: SparkSession, queue: Queue, report: Callable[..., Shell], tmp_path: Path
) -> None:
    for topic, ago, error in (
        ("mail", "50 min", "old error"),
        ("mail", "40 min", None),
        ("mail", "20 min", "old error"),
        ("mail", "10 min", HOSTILE),
        ("mail", "3 hours", "long ago"),
        ("other", "5 min", None),
    ):
        ended(queue, topic, ago, error)

    done = report("--since", "30m", "--baseline", "1h", "--topics", "mail,unknown", "--slo", "99%:5s", "--json")

    assert done.code == 0, done.err
    summary = done.object
    assert (summary["read"], summary["ended"], summary["dead"], summary["topics"], summary["new_fingerprints"]) == (
        4,
        2,
        2,
        1,
        1,
    )
    html = (tmp_path / "out/report.html").read_text()
    assert "never seen before the mark" in html
    assert "fetch(&#x27;https://evil.example/&#x27;)" in html
    assert "dbname" not in html
    read = "SELECT topic, failed FROM read_parquet($path)"
    assert duckdb.execute(read, {"path": f"{summary['tables']['failures']}/*.parquet"}).fetchall() == [("mail", 2)]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"report.html", "tables"}
    assert json.loads(done.out)["page"] == str(tmp_path / "out/report.html")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--since", "yesterday"], 'expected a time ago like "24h", or a time with its zone like "2026-11-20T10:00Z"'),
        (["--since", "2026-11-20T10:00"], "found '2026-11-20T10:00'"),
        (["--since", "1h", "--until", "2h"], "name an earlier time"),
        (["--baseline", "1h", "--deploy", "2026-11-20T10:00Z"], "give one of them"),
        (["--baseline", "0s"], "give the length of the time before --since"),
        (["--deploy", "2020-01-01T00:00Z"], "name an earlier --since"),
        (["--slo", "100%:1s"], 'expected an SLO like "99%:5s"'),
        (["--topics", "a,,b"], "expected names of topics with commas between them"),
        (["--slow", "x"], "--slow"),
    ],
)
def test_an_invalid_option_is_refused_with_the_option_the_value_and_the_fix(
    shell: Shell, arguments: list[str], expected: str
) -> None:
    done = shell("pipeline", "report", "--out", "out", *arguments)

    assert (done.code, expected in done.err) == (2, True), done.err


def test_an_unwritable_directory_is_reported_before_spark_starts(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    done = shell("pipeline", "report", "--out", "file/out", "--lake", "nowhere")

    assert done.code == 78
    assert "--out file/out cannot be written" in done.err


def test_a_missing_lake_or_database_is_reported_before_spark_starts(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_lake = shell("pipeline", "report", "--out", "out", "--lake", "nowhere")
    monkeypatch.setenv("PGROUSE_DSN", "host=127.0.0.1 port=1 dbname=x password=secret-secret")
    no_database = shell("pipeline", "report", "--out", "out")

    assert (no_lake.code, "there is no lake in" in no_lake.err) == (78, True)
    assert (no_database.code, "no connection to PostgreSQL" in no_database.err) == (69, True)
    assert "secret-secret" not in no_database.err
