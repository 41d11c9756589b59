"""However a demo ends, none of its processes continues, unless requested."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from pgrouse.publishing.publish import publish
from tests.demo.process import Demo
from tests.demo.process import run as run_demo
from tests.server.alive import lives
from tests.server.postgres import Database

SIGNALLED_IN_A_FORK = """
import os, signal, sys, time
from pgrouse.cli.demo import command

signal.signal(signal.SIGINT, signal.default_int_handler)
command._end_in_order_when_told_to()
os.register_at_fork(after_in_parent=lambda: signal.raise_signal(int(sys.argv[1])))
try:
    if not os.fork():
        os._exit(0)
    time.sleep(300)
except KeyboardInterrupt:
    print("cleaned up")
    sys.exit(130)
except SystemExit:
    print("cleaned up")
    raise
"""
FAILS_IN_A_FORK = """
import os, sys
from pgrouse.cli.demo import command

command._end_in_order_when_told_to()
os.register_at_fork(after_in_parent=lambda: exec(sys.argv[1]))
if not os.fork():
    os._exit(0)
"""


@pytest.mark.long
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

    assert run.end() == code, run.out + run.err
    assert not any(lives(pid) for pid in daemons)
    assert schemas(empty_database.connect()) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_is_not_lost_in_a_hook_of_a_fork(number: signal.Signals, code: int) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SIGNALLED_IN_A_FORK, str(int(number))], capture_output=True, text=True, check=False
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (code, "cleaned up\n", "")


@pytest.mark.parametrize(("fails", "error"), [("1 / 0", "ZeroDivisionError"), ("sys.exit('why')", "SystemExit: why")])
def test_other_errors_of_hooks_are_printed(fails: str, error: str) -> None:
    command = [sys.executable, "-c", FAILS_IN_A_FORK, fails]

    ended = subprocess.run(command, capture_output=True, text=True, check=False)

    assert ended.returncode == 0
    assert error in ended.stderr
    assert "command.py" not in ended.stderr


@pytest.mark.long
def test_daemons_end_when_their_demo_is_killed_with_9(
    demo: Callable[..., Demo], pids: Callable[[int], list[int]], eventually: Callable[..., bool]
) -> None:
    run = demo()
    daemons = pids(2)

    run.kill()

    assert eventually(lambda: not any(lives(pid) for pid in daemons))


@pytest.mark.long
def test_the_next_demo_starts_clean_after_a_killed_one(
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


@pytest.mark.long
def test_a_second_demo_on_the_same_database_is_refused(
    demo: Callable[..., Demo], pids: Callable[[int], list[int]], tmp_path: Path, empty_database: Database
) -> None:
    first = demo()
    pids(2)
    # However long the second one takes to start: the first has not ended by then.
    first.send(signal.SIGSTOP)

    second = run_demo(tmp_path, "--dsn", empty_database.dsn)

    assert second.returncode == 75
    assert "a demo is running already" in second.stderr


@pytest.mark.long
def test_a_daemon_that_dies_ends_the_demo_with_the_end_of_its_log(
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


@pytest.mark.long
@pytest.mark.slow
def test_keep_leaves_daemons_and_dashboard_running_until_they_are_stopped(
    demo: Callable[..., Demo],
    empty_database: Database,
    pids: Callable[[int], list[int]],
    tmp_path: Path,
    eventually: Callable[..., bool],
) -> None:
    kept = demo("--keep")
    assert kept.end() == 0, kept.out + kept.err
    conn = empty_database.connect()
    daemons = [pid for (pid,) in conn.execute("SELECT w.pid FROM messages.worker AS w") if lives(pid)]
    assert len(daemons) == 2

    message_id = publish(conn, "orders.created", {"id": 7})
    eventually(lambda: conn.execute("SELECT FROM messages.message_archive WHERE id = %s", [message_id]).rowcount == 1)
    dashboard = re.search(r"^\s+(http://127.0.0.1:\d+)$", kept.out, re.MULTILINE)
    assert dashboard is not None
    with urllib.request.urlopen(dashboard[1], timeout=60) as page:
        assert "<h1>Overview</h1>" in page.read().decode()

    stopped = run_demo(tmp_path, "--stop", "--dsn", empty_database.dsn)
    assert stopped.returncode == 0
    assert not any(lives(pid) for pid in daemons)
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(dashboard[1], timeout=60)
    assert schemas(conn) == []
    again = run_demo(tmp_path, "--stop", "--dsn", empty_database.dsn)
    assert (again.returncode, again.stdout.split(maxsplit=1)[1]) == (0, "no demo was left running\n")


@pytest.mark.long
def test_an_unreachable_database_is_exit_code_69(tmp_path: Path) -> None:
    ended = run_demo(tmp_path, "--dsn", "host=127.0.0.1 port=1 user=unknown dbname=nothing")

    assert ended.returncode == 69
    assert ended.stderr.startswith("pgrouse: ")
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.long
def test_a_queue_that_the_demo_did_not_create_is_not_changed(tmp_path: Path, database: Database) -> None:
    conn = database.connect()
    message_id = publish(conn, "orders.created", {"id": 7})

    ended = run_demo(tmp_path, "--dsn", database.dsn)

    assert ended.returncode == 2
    assert "name a database that has none" in ended.stderr
    assert conn.execute("SELECT id FROM messages.message").fetchall() == [(message_id,)]


@pytest.mark.long
@pytest.mark.parametrize("arguments", [["--dir", "/does/not/exist"], ["--files", "0"], ["--dri", "/usr"]])
def test_invalid_arguments_are_exit_code_2(tmp_path: Path, arguments: list[str]) -> None:
    ended = run_demo(tmp_path, *arguments)

    assert ended.returncode == 2
    assert ended.stderr.endswith("see `pgrouse demo --help`\n")


def schemas(conn: psycopg.Connection) -> list[tuple[str]]:
    return conn.execute("SELECT nspname FROM pg_namespace WHERE nspname IN ('demo', 'messages')").fetchall()
