"""`pgrouse pipeline report`, as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from pyspark_pgrouse.report.source import COLUMNS
from tests.cli.shell import Shell
from tests.pipeline.reports import HOSTILE
from tests.server.postgres import Database
from tests.sql.queue import Queue

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


def test_a_report_on_the_database_has_readable_tables_and_a_page(
    queue: Queue, report: Callable[..., Shell], tmp_path: Path
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

    window = ("--since", "30m", "--baseline", "1h", "--topics", "mail,unknown", "--slo", "99%:5s")
    done = report(*window, "--metrics-textfile", "run.prom", "--json")

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
    assert "1 error is new: it was not seen in the 60m before this window." in html
    assert "fetch(&#39;https://evil.example/&#39;)" in html
    assert "dbname" not in html
    read = "SELECT topic, failed FROM read_parquet($path)"
    assert duckdb.execute(read, {"path": summary["tables"]["failures"]}).fetchall() == [("mail", 2)]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"report.html", "tables"}
    assert json.loads(done.out)["page"] == str(tmp_path / "out/report.html")

    assert 'pgrouse_pipeline_run_rows{job="report",name=""} 2.0' in (tmp_path / "run.prom").read_text()


UNTIL = datetime(2026, 11, 23, tzinfo=UTC)
MONDAY = ("--since", "2026-11-16T00:00Z", "--until", "2026-11-23T00:00Z")


def message(number: int, ago: timedelta, **columns: Any) -> dict[str, Any]:
    """A message that ended the given time before the end of the week, a second after it was due."""
    ended = UNTIL - ago
    due = dict.fromkeys(("created_at", "available_at", "locked_at"), ended - timedelta(seconds=1))
    defaults = {"id": number, "topic": "mail", "attempts": 1, "result": "success", "archived_at": ended}
    return due | defaults | columns


def write_lake(path: Path, messages: list[dict[str, Any]], schema: pa.Schema = COLUMNS) -> str:
    """Write a lake as the export does: a Delta table by date and topic."""
    rows = [each | {"date": each["archived_at"].date()} for each in messages]
    table = pa.Table.from_pylist(rows, schema.append(pa.field("date", pa.date32())))
    write_deltalake(path, table, mode="append", partition_by=["date", "topic"])
    return str(path)


def test_a_report_on_a_lake_reads_the_window_its_baseline_and_the_topics(shell: Shell, tmp_path: Path) -> None:
    day = timedelta(days=1)
    ago = [timedelta(microseconds=1), day, 7 * day, 8 * day, 14 * day]
    late = [timedelta(0), 14 * day + timedelta(microseconds=1)]
    write_lake(tmp_path / "lake", [message(n, each) for n, each in enumerate(ago + late)])
    write_lake(tmp_path / "lake", [message(20, day, topic="a:b/%41", result="failed"), message(21, day, topic="other")])

    done = shell("pipeline", "report", "--lake", "lake", "--out", "out", *MONDAY, "--baseline", "7d", "--json")
    some = shell(
        "pipeline", "report", "--lake", "lake", "--out", "out", *MONDAY, "--topics", "a:b/%41,nothing", "--json"
    )

    files = {str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert files == {"report.html", *(f"tables/{name}.parquet" for name in some.object["tables"])}
    assert (done.code, done.object["read"], done.object["ended"], done.object["dead"]) == (0, 7, 5, 1)
    assert (some.code, some.object["read"], some.object["topics"]) == (0, 1, 1)
    failures = duckdb.execute("FROM read_parquet($path)", {"path": some.object["tables"]["failures"]}).fetchall()
    assert [row[:2] for row in failures] == [("a:b/%41", 1)]
    assert (done.object["new_fingerprints"], some.object["new_fingerprints"]) == (1, None)


@pytest.mark.long
def test_files_that_the_table_no_longer_has_are_not_read(shell: Shell, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", [message(1, timedelta(days=1)), message(2, timedelta(days=2))])
    write_deltalake(
        lake,
        pa.Table.from_pylist(
            [message(3, timedelta(days=1)) | {"date": UNTIL.date() - timedelta(days=1)}],
            COLUMNS.append(pa.field("date", pa.date32())),
        ),
        mode="overwrite",
    )

    done = shell("pipeline", "report", "--lake", lake, "--out", "out", *MONDAY, "--json")

    assert (done.code, done.object["read"]) == (0, 1)


@pytest.mark.long
def test_a_lake_may_lack_what_the_export_left_out_but_not_what_is_measured(shell: Shell, tmp_path: Path) -> None:
    masked = pa.schema([field for field in COLUMNS if field.name not in ("error", "channel", "handled_by")])
    lake = write_lake(tmp_path / "lake", [message(1, timedelta(days=1), result="failed")], masked)
    unmeasured = write_lake(
        tmp_path / "unmeasured", [message(1, timedelta(days=1))], COLUMNS.remove(COLUMNS.get_field_index("result"))
    )

    done = shell("pipeline", "report", "--lake", lake, "--out", "out", *MONDAY)
    refused = shell("pipeline", "report", "--lake", unmeasured, "--out", "out", *MONDAY)

    assert done.code == 0, done.err
    assert "(failed, without an error)" in (tmp_path / "out/report.html").read_text()
    assert (refused.code, "has no column result, which a report needs" in refused.err) == (78, True)


def test_a_file_of_the_lake_that_is_gone_is_named_and_can_be_tried_again(shell: Shell, tmp_path: Path) -> None:
    lake = write_lake(tmp_path / "lake", [message(1, timedelta(days=1))])
    (gone,) = Path(lake).rglob("*.parquet")
    gone.unlink()

    done = shell("pipeline", "report", "--lake", lake, "--out", "out", *MONDAY)

    assert (done.code, gone.name in done.err) == (75, True), done.err
    assert not (tmp_path / "out/report.html").exists()


@pytest.mark.long
def test_the_report_needs_neither_spark_nor_java() -> None:
    program = (
        "import sys, pyspark_pgrouse.jobs.report; print({'pyspark', 'py4j', 'pyspark_pgrouse.source'} & {*sys.modules})"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=True)

    assert done.stdout.strip() == "set()"


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
        (["--topics", "a,,b"], "expected names with commas between them"),
        (["--slow", "x"], "--slow"),
    ],
)
def test_an_invalid_option_is_refused_with_the_option_the_value_and_the_fix(
    shell: Shell, arguments: list[str], expected: str
) -> None:
    done = shell("pipeline", "report", "--out", "out", *arguments)

    assert (done.code, expected in done.err) == (2, True), done.err


def test_an_unwritable_directory_is_reported_before_anything_is_read(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    done = shell("pipeline", "report", "--out", "file/out", "--lake", "nowhere")

    assert done.code == 78
    assert "--out file/out cannot be written" in done.err


def test_a_missing_lake_or_database_is_reported(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    no_lake = shell("pipeline", "report", "--out", "out", "--lake", "nowhere")
    monkeypatch.setenv("PGROUSE_DSN", "host=127.0.0.1 port=1 dbname=x password=secret-secret")
    no_database = shell("pipeline", "report", "--out", "out")

    assert (no_lake.code, "there is no lake in" in no_lake.err) == (78, True)
    assert (no_database.code, "no connection to PostgreSQL" in no_database.err) == (69, True)
    assert "secret-secret" not in no_database.err
