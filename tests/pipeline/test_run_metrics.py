"""The metrics that every job writes, and `--max-lag` of the export."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import click
import pytest
from prometheus_client.parser import text_string_to_metric_families

from pgrouse.client.queries.pipeline.row import Scope
from pgrouse.errors import ConfigError, DatabaseUnreachable, ExitCode
from pgrouse.terminal.command import CliSession
from pyspark_pgrouse.connection.connection import connect
from pyspark_pgrouse.jobs.export_lag import LagExceeded, check_lag, export_lag
from pyspark_pgrouse.jobs.job_options import spark_options
from pyspark_pgrouse.jobs.run_metrics import RunReport, record_run
from pyspark_pgrouse.read.position import Position, queue_identifier
from tests.daemon.collector import attributes, collecting
from tests.pipeline.lakes import fill
from tests.server.postgres import Database
from tests.sql.queue import Queue


def run_job(body: Callable[[], int], *options: str) -> Any:
    """Run a job that has only the options of all jobs."""

    @click.command("sample")
    @spark_options
    @click.pass_obj
    def sample(_session: CliSession, **_options: Any) -> int:
        return body()

    return sample.main(list(options), obj=CliSession(), standalone_mode=False)


def written(text: str) -> dict[str, float]:
    """Return the values of the metrics, by name without its prefix."""
    families = text_string_to_metric_families(text)
    return {each.name.removeprefix("pgrouse_pipeline_"): each.samples[0].value for each in families}


def works() -> int:
    record_run(RunReport(rows=7, bytes=900, lag_rows=2, lag_s=1.5))
    return ExitCode.OK


def fails() -> int:
    raise DatabaseUnreachable("away")


def test_a_run_writes_what_it_did_for_the_textfile_collector(tmp_path: Path) -> None:
    file = tmp_path / "export.prom"

    run_job(works, "--metrics-textfile", str(file), "--metrics-name", "eu")

    text = file.read_text()
    values = written(text)
    assert 'pgrouse_pipeline_run_rows{job="sample",name="eu"} 7.0' in text
    assert {name: values[name] for name in ("exit_code", "run_bytes", "lag_rows", "lag_seconds")} == {
        "exit_code": 0,
        "run_bytes": 900,
        "lag_rows": 2,
        "lag_seconds": 1.5,
    }
    assert values["last_run_timestamp_seconds"] >= values["last_success_timestamp_seconds"] > 0
    assert values["run_duration_seconds"] >= 0


def test_a_run_that_fails_keeps_when_one_succeeded_last(tmp_path: Path) -> None:
    file = tmp_path / "export.prom"
    run_job(works, "--metrics-textfile", str(file))
    before = written(file.read_text())

    with pytest.raises(DatabaseUnreachable):
        run_job(fails, "--metrics-textfile", str(file))

    after = written(file.read_text())
    assert after["exit_code"] == ExitCode.DATABASE_UNREACHABLE
    assert after["last_success_timestamp_seconds"] == before["last_success_timestamp_seconds"]
    assert after["last_run_timestamp_seconds"] > before["last_run_timestamp_seconds"]


def test_a_run_that_found_a_problem_is_no_success(tmp_path: Path) -> None:
    file = tmp_path / "publish.prom"

    code = run_job(lambda: ExitCode.FOUND_A_PROBLEM, "--metrics-textfile", str(file))

    assert code == written(file.read_text())["exit_code"] == 1
    assert "last_success_timestamp_seconds" not in written(file.read_text())


def test_a_file_that_cannot_be_written_does_not_fail_the_job(capsys: pytest.CaptureFixture[str]) -> None:
    code = run_job(works, "--metrics-textfile", "/proc/absent/export.prom")

    assert code == ExitCode.OK
    assert "the metrics could not be written to /proc/absent/export.prom" in capsys.readouterr().err


# The Pushgateway


@contextmanager
def gateway() -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    """Run a Pushgateway that records what it is sent: method, path and body."""
    received: list[tuple[str, str, str]] = []

    class Requests(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            received.append((self.command, self.path, body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Requests)
    thread = threading.Thread(target=server.serve_forever, args=[0.05])
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", received
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_push_replaces_the_metrics_that_it_has_and_no_others() -> None:
    with gateway() as (url, received):
        run_job(works, "--metrics-pushgateway", url, "--metrics-name", "eu")
        with pytest.raises(DatabaseUnreachable):
            run_job(fails, "--metrics-pushgateway", url)

    # POST replaces by name. A run that fails sends no last success, so the gateway keeps the older one.
    assert [(method, path) for method, path, _ in received[-2:]] == [
        ("POST", "/metrics/job/pgrouse-sample/name/eu"),
        ("POST", "/metrics/job/pgrouse-sample"),
    ]
    assert written(received[-2][2])["run_rows"] == 7
    assert "last_success_timestamp_seconds" not in written(received[-1][2])


def test_a_gateway_that_is_away_does_not_fail_the_job(capsys: pytest.CaptureFixture[str]) -> None:
    code = run_job(works, "--metrics-pushgateway", "http://127.0.0.1:9")

    assert code == ExitCode.OK
    assert "the metrics could not be pushed" in capsys.readouterr().err


def test_a_gateway_that_is_no_url_is_refused_before_the_run() -> None:
    with pytest.raises(ConfigError, match=r"expected a URL like http://pushgateway:9091"):
        run_job(fails, "--metrics-pushgateway", "pushgateway:9091")


# OpenTelemetry


@pytest.mark.long
def test_metrics_are_exported_by_opentelemetry(tmp_path: Path) -> None:
    (tmp_path / "pgrouse.toml").write_text("[otel]\nenabled = true\n")
    program = "from tests.pipeline.test_run_metrics import run_job, works; run_job(works, '--metrics-name', 'eu')"
    root = str(Path(__file__).parents[2])
    with collecting() as collector:
        environ = {**os.environ, "PYTHONPATH": root, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.address}
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        points = collector.metrics()

    rows = points["pgrouse.pipeline.run.rows"][-1]
    assert rows.as_double == 7
    assert attributes(rows) == {"pgrouse.pipeline.job": "sample", "pgrouse.pipeline.name": "eu"}
    expected = {
        "last_run_timestamp",
        "last_success_timestamp",
        "exit_code",
        "run.duration",
        "run.bytes",
        "lag.rows",
        "lag",
    }
    assert {f"pgrouse.pipeline.{name}" for name in expected} <= set(points)


# The lag of an export


def test_rows_behind_an_open_transaction_exceed_the_maximum_lag(queue: Queue, other: Queue, database: Database) -> None:
    with connect(database.dsn) as conn, other.conn.transaction():
        fill(other, 1)
        fill(queue, 3, first=100)
        lag = export_lag(conn, Position(queue_identifier(conn), "0", 0), Scope())

        assert (lag.rows, lag.seconds > 0) == (3, True)
        with pytest.raises(
            LagExceeded, match=r"3 rows wait to be exported, the oldest for .*: the watermark is"
        ) as raised:
            check_lag(conn, lag, timedelta(0))
        assert raised.value.exit_code == 3
        check_lag(conn, lag, timedelta(days=1_000))
        check_lag(conn, lag, None)


def test_the_lag_counts_only_the_topics_of_the_export(queue: Queue, database: Database) -> None:
    fill(queue, 2, topic="other", first=10)
    with connect(database.dsn) as conn:
        lag = export_lag(conn, Position(queue_identifier(conn), "0", 0), Scope(topics=("t",)))

    assert (lag.rows, lag.seconds) == (0, 0)
