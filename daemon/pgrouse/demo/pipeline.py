"""The part on Spark: the archive goes to a lake, the lake becomes a report, and the dead messages are redriven."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from pgrouse.demo.screen import Screen
from pgrouse.demo.verification import Verification
from pgrouse.errors import PgrouseError

WITHIN_S = 300
ARCHIVED = "SELECT count(*) FROM messages.message_archive"
DEAD = "SELECT count(*) FROM messages.dead"
PUT_BACK = "SELECT count(*) FROM messages.redrive_log"


class JobFailed(PgrouseError):
    """A job of the pipeline failed."""


def play(conn: psycopg.Connection[Any], dsn: str, screen: Screen) -> Iterator[Verification]:
    """Run the three jobs, print what each did, and check it by SQL.

    Raises:
        JobFailed: with the job's error.
    """
    place = Path(tempfile.mkdtemp(prefix="pgrouse-demo-"))
    screen.tell("spark", "the archive goes to a lake, becomes a report, and its dead messages are put back")
    archived = _count(conn, ARCHIVED)
    exported = _run(dsn, "export", f"{place}/lake")
    screen.tell("export", f"{exported['rows']:,} messages in {exported['files']} Parquet files in {place}/lake")
    yield Verification(
        "lake", exported["rows"] == archived, f"{exported['rows']:,} of {archived:,} archived are in the lake"
    )

    report = _run(dsn, "report", "--lake", f"{place}/lake", "--since", "1h", "--out", f"{place}/report")
    screen.tell("report", "open this page in a browser:")
    screen.quote(report["page"])
    yield Verification("report", report["ended"] == archived, f"the report tells of {report['ended']:,} of them")

    dead = _count(conn, DEAD)
    _run(dsn, "redrive", "--lake", f"{place}/lake", "--where", "true")
    back = _count(conn, PUT_BACK)
    screen.tell("redrive", f"{back} dead messages wait for another try, once each")
    yield Verification(
        "redriven", back == dead, f"{back} of {dead} dead messages were put back, and each stays in the archive"
    )


def _run(dsn: str, job: str, *arguments: str) -> dict[str, Any]:
    """Run a job in a separate process and return the last thing it printed.

    Its standard error is shown only if it fails.
    """
    done = subprocess.run(  # noqa: S603 - a program of this package
        [sys.executable, "-m", "pgrouse", "pipeline", job, *arguments, "--json"],
        env={**os.environ, "PGROUSE_DSN": dsn},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    if done.returncode != 0:
        raise JobFailed(f"`pgrouse pipeline {job}` ended with exit code {done.returncode}:\n{done.stderr.strip()}")
    last: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return last


def _count(conn: psycopg.Connection[Any], statement: str) -> int:
    row: Any = conn.execute(statement.encode()).fetchone()
    return int(row[0])
