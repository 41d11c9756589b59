"""pgrouse in the neutral harness: its adapter's side of the contract, the check of its messages, and what is shown.

No test needs the harness.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import psycopg
import pytest
from bench.__main__ import main
from bench.harness import ledger
from bench.harness.ledger import Check
from bench.harness.result import Result, ScenarioReport
from bench.harness.scenario import SHORT, own
from bench.harness.systems import HERE, PROGRAMS
from click.testing import CliRunner

from tests.server.postgres import Database

SYSTEMS = ["pgrouse", "pgrouse-batch"]
# What the harness requires of each sample.
REQUIRED = {"claim_p50_ms", "claim_p95_ms", "claim_p99_ms", "enqueue_rate", "completion_rate", "queue_depth"}
# Far more than a slow machine needs until messages end.
SAMPLES = 1000


@contextmanager
def adapter(system: str, database: Database, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run an adapter at the rate that its file says."""
    (folder / "ledger").mkdir()
    (folder / "rate").write_text("200.0")
    told = {
        "DATABASE_URL": database.dsn,
        "SCENARIO": "long_horizon",
        "PRODUCER_RATE_CONTROL_FILE": str(folder / "rate"),
        "SAMPLE_EVERY_S": "1",
        "PGROUSE_BENCH_LEDGER": str(folder / "ledger"),
    }
    command = [sys.executable, str(PROGRAMS / "with_pgrouse.py"), str(HERE / f"{system}-bench"), system]
    process = subprocess.Popen(command, env={**os.environ, **told}, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def records(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """Yield what it prints; each line must be JSON."""
    assert process.stdout is not None
    yield from map(json.loads, process.stdout)


def write_ledger(folder: Path, *lines: str) -> None:
    (folder / "one").write_text("".join(f"{line}\n" for line in lines))


def publish(db: psycopg.Connection[Any], batch: int, n: int) -> None:
    payload = json.dumps({"run": "one", "batch": batch, "n": n})
    db.execute("INSERT INTO messages.message (topic, payload) VALUES ('job_0', %s)", [payload])


class TestAdapter:
    """The process that the harness starts."""

    @pytest.mark.parametrize("system", SYSTEMS)
    def test_it_keeps_the_contract_and_loses_no_message(self, system: str, database: Database, tmp_path: Path) -> None:
        with adapter(system, database, tmp_path) as process, database.connect() as conn:
            printed = records(process)
            first = next(printed)
            seen: dict[str, float] = {}
            for sample in islice(printed, SAMPLES):
                seen[sample["metric"]] = sample["value"]
                if seen.keys() >= REQUIRED and seen["completion_rate"]:
                    break
            process.send_signal(signal.SIGTERM)
            code = process.wait(60)
            checked = ledger.check(conn, tmp_path / "ledger")
            left = conn.execute(ledger.LEFT).fetchone()
        words = [line.split()[0] for file in (tmp_path / "ledger").iterdir() for line in file.read_text().splitlines()]

        manifest = json.loads((HERE / f"{system}-bench" / "adapter.json").read_text())
        assert first["kind"] == "descriptor"
        assert {name: first[name] for name in ("system", "event_tables", "extensions", "db_name")} == {
            name: manifest[name] for name in ("system", "event_tables", "extensions", "db_name")
        }
        assert sample.keys() == {
            *("t", "system", "kind", "subject_kind", "subject", "metric", "value", "window_s", "instance_id")
        }
        assert seen.keys() >= REQUIRED
        assert seen["completion_rate"] > 0
        assert 0 < seen["claim_p50_ms"] <= seen["claim_p99_ms"]
        assert code == 0
        assert checked.completed > 0
        assert (checked.dead, checked.lost, checked.twice) == (0, 0, 0)
        assert words.count("begin") == words.count("end")
        assert left == (checked.published - checked.completed,)

    @pytest.mark.parametrize("system", SYSTEMS)
    def test_its_tables_exist(self, system: str, db: psycopg.Connection[Any]) -> None:
        tables = json.loads((HERE / f"{system}-bench" / "adapter.json").read_text())["event_tables"]

        missing = [name for name in tables if db.execute("SELECT to_regclass(%s)", [name]).fetchone() == (None,)]

        assert missing == []


class TestCheck:
    """What becomes of published messages."""

    def test_a_message_that_is_nowhere_is_lost(self, db: psycopg.Connection[Any], tmp_path: Path) -> None:
        write_ledger(tmp_path, "begin one 0 2", "end one 0")
        publish(db, 0, 0)

        checked = ledger.check(db, tmp_path)

        assert checked == Check(published=2, completed=0, dead=0, lost=1, twice=0)

    def test_a_message_that_is_there_again_is_found(self, db: psycopg.Connection[Any], tmp_path: Path) -> None:
        write_ledger(tmp_path, "begin one 0 1", "end one 0")
        publish(db, 0, 0)
        publish(db, 0, 0)

        checked = ledger.check(db, tmp_path)

        assert (checked.lost, checked.twice, checked.is_exact) == (0, 1, False)

    def test_a_message_that_was_never_published_counts_as_twice(
        self, db: psycopg.Connection[Any], tmp_path: Path
    ) -> None:
        write_ledger(tmp_path)
        publish(db, 7, 0)

        assert ledger.check(db, tmp_path).twice == 1

    def test_a_batch_of_unknown_end_may_be_there_or_not_but_only_as_a_whole(
        self, db: psycopg.Connection[Any], tmp_path: Path
    ) -> None:
        write_ledger(tmp_path, "begin one 0 2", "begin one 1 1", "begin one 2 2")
        publish(db, 1, 0)
        publish(db, 2, 0)

        checked = ledger.check(db, tmp_path)

        assert (checked.published, checked.lost) == (3, 1)

    def test_a_dead_message_is_not_completed(self, db: psycopg.Connection[Any], tmp_path: Path) -> None:
        write_ledger(tmp_path, "begin one 0 1", "end one 0")
        publish(db, 0, 0)
        db.execute("SELECT messages.cancel(ARRAY(SELECT m.id FROM messages.message AS m))")

        checked = ledger.check(db, tmp_path)

        assert (checked.dead, checked.lost, checked.is_exact) == (1, 0, False)
        assert str(checked) == "0 of 1, 1 dead, 0 lost, 0 twice"


class TestScenarios:
    """What is run."""

    def test_the_first_phase_of_each_is_not_measured(self) -> None:
        assert {scenario.phases[0] for scenario in SHORT.values()} == {"warmup=warmup"}

    def test_those_of_the_harness_have_its_phases_and_the_load_of_its_sweep(self) -> None:
        found = own({"chaos_crash_recovery": ["warmup=warmup:30s", "kill=kill-worker(instance=0):60s"]})

        scenario = found["chaos_crash_recovery"]
        assert scenario.phases == ["warmup=warmup", "kill=kill-worker(instance=0)"]
        assert (scenario.rate, scenario.processes) == (300, 2)


class TestResult:
    """What is shown of what the harness recorded."""

    RAW = """system,instance_id,sampled_at,phase_label,subject,metric,value,window_s
pgrouse,0,2026-01-01T00:00:01.000Z,clean_1,,completion_rate,300,1
pgrouse,1,2026-01-01T00:00:01.002Z,clean_1,,completion_rate,200,1
pgrouse,0,2026-01-01T00:00:01.000Z,clean_1,,enqueue_rate,600,1
pgrouse,0,2026-01-01T00:00:01.000Z,clean_1,,claim_p99_ms,7,30
pgrouse,1,2026-01-01T00:00:01.002Z,clean_1,,claim_p99_ms,9,30
pgrouse,0,2026-01-01T00:00:01.000Z,clean_1,,queue_depth,4,0
pgrouse,0,2026-01-01T00:00:01.000Z,clean_1,messages.message,n_dead_tup,5000,0
pgrouse,0,2026-01-01T00:00:02.000Z,clean_1,messages.message,n_dead_tup,1000,0
another,0,2026-01-01T00:00:01.000Z,clean_1,,completion_rate,1,1
"""

    def test_rates_are_those_of_all_processes_and_p99_of_the_worst(self, tmp_path: Path) -> None:
        raw = tmp_path / "raw.csv"
        raw.write_text(self.RAW)
        phases = [("warmup", "warmup"), ("clean_1", "clean"), ("kill", "kill-worker")]

        result = Result.read(raw, "pgrouse", phases, Check(9, 9, 0, 0, 0), "")

        assert result.cells == ["pgrouse", "500/s, 9 ms", "-", "1 -", "-", "500 of 600", "9 once each", ""]

    def test_a_system_that_fails_is_shown_with_the_reason(self, tmp_path: Path) -> None:
        raw = tmp_path / "raw.csv"
        raw.write_text(self.RAW.splitlines()[0])
        result = Result.read(raw, "pgmq", [("clean_1", "clean")], None, "RuntimeError: it exited")

        report = ScenarioReport("harness-chaos", "", [result])
        text, members = report.as_text(), json.loads(json.dumps(report.as_json()))

        assert "| pgmq   | -     | -" in text
        assert "RuntimeError: it exited" in text
        assert members["results"][0]["error"] == "RuntimeError: it exited"


class TestCommand:
    """`python -m bench --harness`."""

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["pressure"], "pressure: only with --harness"),
            (["--harness", ".", "drain"], "drain: not with --harness"),
            (["--harness", ".", "--peers"], "without --peers"),
            (["--harness", ".", "--systems", "kafka"], "kafka: not one of pgrouse"),
            (["--harness", "."], "give a checkout of the harness"),
        ],
    )
    def test_what_cannot_be_run_is_refused(self, arguments: list[str], said: str) -> None:
        output = CliRunner().invoke(main, arguments)

        assert output.exit_code == 2
        assert said in " ".join(output.output.split())
