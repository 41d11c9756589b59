"""However a demo ends, nothing of it goes on running, unless that was asked for."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from pgrouse.publishing.publish import publish
from tests.demo.process import PGROUSE, Demo, environ
from tests.server.alive import lives
from tests.server.postgres import Database


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_the_demo_and_its_daemons_and_clears_the_database(
    demo: Callable[..., Demo],
    empty_database: Database,
    pids: Callable[[int], list[int]],
    number: signal.Signals,
    code: int,
) -> None:
    run = demo()
    daemons = pids(2)

    run.send(number)

    assert run.end() == code
    assert not any(lives(pid) for pid in daemons)
    assert schemas(empty_database.connect()) == []


def test_daemons_do_not_outlive_a_demo_that_is_killed_with_9(
    demo: Callable[..., Demo], pids: Callable[[int], list[int]], eventually: Callable[..., bool]
) -> None:
    run = demo()
    daemons = pids(2)

    run.kill()

    assert eventually(lambda: not any(lives(pid) for pid in daemons))


def test_after_a_demo_that_was_killed_the_next_one_begins_anew(
    demo: Callable[..., Demo],
    empty_database: Database,
    pids: Callable[[int], list[int]],
    eventually: Callable[..., bool],
) -> None:
    killed = demo()
    before = pids(2)
    killed.kill()

    run = demo("--files", 1)
    eventually(lambda: not {*pids(2)} & {*before}, within_s=60)
    run.send(signal.SIGINT)

    assert run.end() == 130
    assert schemas(empty_database.connect()) == []


def test_a_second_demo_on_the_same_database_is_refused_while_one_runs(
    demo: Callable[..., Demo], pids: Callable[[int], list[int]], tmp_path: Path, empty_database: Database
) -> None:
    first = demo()
    pids(2)
    # However long the second one takes to begin: the first has not ended by then.
    first.send(signal.SIGSTOP)

    second = stop_or_start(tmp_path, "--dsn", empty_database.dsn)

    assert second.returncode == 75
    assert "a demo is running already" in second.stderr


def test_a_daemon_that_dies_by_itself_ends_the_demo_with_the_end_of_its_log(
    demo: Callable[..., Demo], empty_database: Database, pids: Callable[[int], list[int]]
) -> None:
    run = demo()
    daemons = pids(2)

    os.kill(daemons[0], signal.SIGKILL)

    assert run.end() == 1
    assert "pgrouse: worker-1 (pid" in run.err
    assert '"event": "' in run.err
    assert not any(lives(pid) for pid in daemons)
    assert schemas(empty_database.connect()) == []


@pytest.mark.slow
def test_with_keep_daemons_go_on_working_and_a_dashboard_shows_them_until_they_are_stopped(
    demo: Callable[..., Demo],
    empty_database: Database,
    pids: Callable[[int], list[int]],
    tmp_path: Path,
    eventually: Callable[..., bool],
) -> None:
    kept = demo("--keep")
    assert kept.end() == 0
    conn = empty_database.connect()
    daemons = [pid for (pid,) in conn.execute("SELECT w.pid FROM messages.worker AS w") if lives(pid)]
    assert len(daemons) == 2

    message_id = publish(conn, "orders.created", {"id": 7})
    eventually(lambda: conn.execute("SELECT FROM messages.message_archive WHERE id = %s", [message_id]).rowcount == 1)
    dashboard = re.search(r"^\s+(http://127.0.0.1:\d+)$", kept.out, re.MULTILINE)
    assert dashboard is not None
    with urllib.request.urlopen(dashboard[1], timeout=60) as page:
        assert "<h1>Overview</h1>" in page.read().decode()

    stopped = stop_or_start(tmp_path, "--stop", "--dsn", empty_database.dsn)
    assert stopped.returncode == 0
    assert not any(lives(pid) for pid in daemons)
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(dashboard[1], timeout=60)
    assert schemas(conn) == []
    again = stop_or_start(tmp_path, "--stop", "--dsn", empty_database.dsn)
    assert (again.returncode, again.stdout.split(maxsplit=1)[1]) == (0, "no demo was left running\n")


def test_a_database_that_nobody_answers_for_is_exit_code_69(tmp_path: Path) -> None:
    ended = stop_or_start(tmp_path, "--dsn", "host=127.0.0.1 port=1 user=nobody dbname=nothing")

    assert ended.returncode == 69
    assert ended.stderr.startswith("pgrouse: ")
    assert len(ended.stderr.splitlines()) == 1


def test_a_queue_that_the_demo_did_not_make_is_left_alone(tmp_path: Path, database: Database) -> None:
    conn = database.connect()
    message_id = publish(conn, "orders.created", {"id": 7})

    ended = stop_or_start(tmp_path, "--dsn", database.dsn)

    assert ended.returncode == 2
    assert "name a database that has none" in ended.stderr
    assert conn.execute("SELECT id FROM messages.message").fetchall() == [(message_id,)]


@pytest.mark.parametrize("arguments", [["--dir", "/does/not/exist"], ["--files", "0"], ["--dri", "/usr"]])
def test_wrong_arguments_are_exit_code_2(tmp_path: Path, arguments: list[str]) -> None:
    ended = stop_or_start(tmp_path, *arguments)

    assert ended.returncode == 2
    assert ended.stderr.endswith("see `pgrouse demo --help`\n")


def stop_or_start(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PGROUSE, "demo", *arguments], env=environ(folder), capture_output=True, text=True, check=False, timeout=110
    )


def schemas(conn: psycopg.Connection) -> list[tuple[str]]:
    return conn.execute("SELECT nspname FROM pg_namespace WHERE nspname IN ('demo', 'messages')").fetchall()
