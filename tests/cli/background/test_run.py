"""`pgrouse run`: its command line. The daemon is tested by tests/daemon."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import PGROUSE, Shell
from tests.server.postgres import Database
from tests.sql.queue import Queue


def test_run_without_a_handler_exits_with_an_error(shell: Shell, folder: Path) -> None:
    without_file = shell("run")
    (folder / "pgrouse.toml").touch()
    with_file = shell("run")

    assert (without_file.code, with_file.code) == (78, 78)
    assert without_file.err == (
        'pgrouse: there is no handler: add a table [topics."orders.created"] with its handler to a pgrouse.toml '
        "(`pgrouse init` writes one), or name a module with @topic by -m\n"
    )
    assert f"to {folder}/pgrouse.toml" in with_file.err


def test_a_flag_is_checked_as_its_key(shell: Shell, folder: Path) -> None:
    ended = shell("run", "--concurrency", "0", "--name", "a\nb")

    assert ended.code == 78
    assert ended.err.splitlines() == [
        "pgrouse: --concurrency: worker.concurrency: must be at least 1, found 0",
        r"pgrouse: --name: worker.name: must be 1 to 200 printable characters, found 'a\nb'",
    ]


@pytest.mark.long
def test_a_handler_that_cannot_be_imported_ends_run_at_once(shell: Shell, folder: Path) -> None:
    (folder / "pgrouse.toml").write_text('[topics.a]\nhandler = "nowhere_to_be_found:work"')

    done = subprocess.run([PGROUSE, "run"], cwd=folder, capture_output=True, text=True, timeout=100, check=False)

    assert done.returncode == 78
    assert "pgrouse.toml:2" in done.stderr


@pytest.fixture
def daemon(folder: Path, shell: Shell, database: Database) -> Iterator[subprocess.Popen[str]]:
    """The daemon of a fresh `pgrouse init`, started with flags."""
    shell("init")
    process = subprocess.Popen(
        [PGROUSE, "run", "--name", "flag", "--concurrency", "7", "--log-level", "warning"],
        cwd=folder, env={**os.environ, "PGROUSE_DSN": database.dsn}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    yield process
    process.kill()
    process.wait()
    assert process.stderr is not None
    process.stderr.close()


@pytest.mark.long
def test_the_project_that_init_writes_processes_messages_and_passes_health(
    daemon: subprocess.Popen[str], pgrouse: Shell, queue: Queue, eventually: Callable[..., Any]
) -> None:
    message_id = int(pgrouse("publish", "hello", '{"name": "world"}').out)

    row = eventually(lambda: queue.archived(message_id), within_s=60)
    worker = pgrouse("worker", "list", "--json").object
    health = pgrouse("health")
    daemon.send_signal(signal.SIGTERM)

    assert (row.result, row.output) == ("success", "Hello, world!")
    assert worker["name"].startswith("flag")
    assert worker["concurrency"] == 7
    assert health.code == 0
    assert daemon.wait(timeout=60) == 0
