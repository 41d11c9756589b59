"""A daemon and a web server whose standard streams are closed, full, or without a reader."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.daemon.process import PGROUSE
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

WORK = """
def speak(flush):
    print("said", flush=flush)
"""
CONFIGURATION = """
[topics.job]
handler = "work:speak"
[topics.apart]
handler = "work:speak"
isolation = "process"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "work.py").write_text(WORK)
    (tmp_path / "pgrouse.toml").write_text(CONFIGURATION)
    return tmp_path


@contextmanager
def running(database: Database, folder: Path, command: str, streams: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command whose streams a shell has prepared."""
    line = f'exec "$0" {command} {streams}'
    environ = {**os.environ, "PGROUSE_DSN": database.dsn, "PYTHONUNBUFFERED": ""}
    process = subprocess.Popen(["/bin/sh", "-c", line, PGROUSE], cwd=folder, env=environ, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


@pytest.mark.parametrize(
    ("streams", "processes"),
    [
        ("<&- >&- 2>&-", 2),
        (">/dev/full 2>/dev/full", 1),
        pytest.param(">&- 2>&-", 1, marks=pytest.mark.long),
        pytest.param(">&- 2>&-", 2, marks=pytest.mark.long),
        pytest.param("<&- >&- 2>&-", 1, marks=pytest.mark.long),
        pytest.param(">/dev/full 2>/dev/full", 2, marks=pytest.mark.long),
    ],
)
def test_a_daemon_works_and_stops_without_its_streams(
    database: Database, folder: Path, queue: Queue, streams: str, processes: int
) -> None:
    with running(database, folder, f"run --processes {processes}", streams) as daemon:
        # What the first handler prints is in a buffer of the daemon, which cannot be written when a process starts.
        for ended, topic in enumerate(("job", "apart"), start=1):
            queue.publish(topic, payload="false" if "full" in streams else "true")
            eventually(lambda: queue.value("SELECT count(*) FROM messages.message_archive") == ended)  # noqa: B023
        daemon.send_signal(signal.SIGTERM)

        assert daemon.wait(60) == 0
    assert queue.rows("SELECT DISTINCT result, error FROM messages.message_archive") == [("success", None)]


@pytest.mark.long
def test_a_web_server_works_and_stops_without_its_streams(database: Database, folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with running(database, folder, f"web --listen 127.0.0.1:{port}", "<&- >&- 2>&-") as server:
        eventually(lambda: _answers(port))
        server.send_signal(signal.SIGTERM)

        assert server.wait(60) == 0


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/livez", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
