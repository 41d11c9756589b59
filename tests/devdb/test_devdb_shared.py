"""A server that several processes use at once, as those of pytest-xdist."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from pgrouse import devdb
from pgrouse.devdb import postmaster
from pgrouse.devdb.scratch import Scratch

USER = """
import sys
from pathlib import Path
from pgrouse import devdb
from pgrouse.devdb import os_user
from tests.devdb.test_devdb_shared import private

folder = Path(sys.argv[1])
os_user.cache_folder = lambda: folder
with devdb.shared("several", private(folder)) as is_first:
    print(is_first, flush=True)
    sys.stdin.read()
"""
Process = subprocess.Popen[str]


def private(folder: Path) -> devdb.PrivateServer:
    installation = next(iter(devdb.local()), None) or devdb.embedded()
    if installation is None:
        pytest.skip("no PostgreSQL here")
    return devdb.PrivateServer(installation, folder / "server", settings=devdb.FAST_UNSAFE_SETTINGS)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the server's user can reach; those of pytest are closed to other users."""
    scratch = Scratch("devdb")
    yield scratch.folder
    postmaster.end(scratch.folder / "server" / "data", postmaster.IMMEDIATE)
    scratch.remove()


@pytest.fixture
def use(folder: Path) -> Iterator[Callable[[], tuple[Process, bool]]]:
    """Start a process that uses the server; return it, and whether it is the only one."""
    started: list[Process] = []

    def start() -> tuple[Process, bool]:
        command = [sys.executable, "-c", USER, str(folder)]
        checkout = Path(__file__).parents[2]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=checkout)
        started.append(process)
        assert process.stdout is not None
        return process, process.stdout.readline() == "True\n"

    yield start
    for each in started:
        each.kill()
        each.communicate()


def end(process: Process) -> None:
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_the_first_starts_it_and_the_last_stops_it(folder: Path, use: Callable[[], tuple[Process, bool]]) -> None:
    (first, is_alone), (second, is_alone_too) = use(), use()
    assert (is_alone, is_alone_too) == (True, False)

    end(first)
    assert private(folder).running()

    end(second)
    assert not private(folder).running()


@pytest.mark.long
def test_who_is_killed_uses_it_no_more_and_the_next_one_stops_it(
    folder: Path, use: Callable[[], tuple[Process, bool]]
) -> None:
    killed, _ = use()
    killed.kill()
    killed.wait()
    assert private(folder).running()

    last, is_alone = use()
    end(last)

    assert is_alone
    assert not private(folder).running()


@pytest.mark.long
@pytest.mark.parametrize("how", [postmaster.FAST, postmaster.KILL])
def test_the_data_of_a_server_that_was_killed_are_made_again(
    folder: Path, use: Callable[[], tuple[Process, bool]], how: signal.Signals
) -> None:
    first, _ = use()
    with psycopg.connect(private(folder).dsn(), autocommit=True) as conn:
        conn.execute("CREATE DATABASE kept")
    first.kill()
    first.wait()
    data = private(folder).data
    postmaster.end(data, how)

    use()

    with psycopg.connect(private(folder).dsn(), autocommit=True) as conn:
        found = conn.execute("SELECT FROM pg_database WHERE datname = 'kept'").fetchall()
    assert len(found) == (1 if how == postmaster.FAST else 0)
