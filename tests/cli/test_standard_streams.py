"""Standard streams that are closed, full, without a reader, non-blocking, or of another encoding."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import termios

import pytest

from tests.cli.shell import PGROUSE
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

CLOSED = "pgrouse: the standard output is closed: send it to a file, or to /dev/null\n"
PIPE_BYTES = 65_536
FULL = "pgrouse: No space left on device\n"


def run(database: Database, command: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a line of a shell in which $pgrouse is the command."""
    return subprocess.run(
        ["/bin/bash", "-c", command],
        env={**os.environ, "PGROUSE_DSN": database.dsn, "pgrouse": PGROUSE, **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("topic list >&-", CLOSED),
        ("--json topic list >&-", CLOSED),
        ("doctor >&-", CLOSED),
        ("--version >&-", CLOSED),
        ("topic list >/dev/full", FULL),
        ("--json topic list >/dev/full", FULL),
        ("topic list >&- 2>&-", ""),
    ],
)
def test_a_result_that_cannot_be_written_is_an_error(database: Database, command: str, said: str) -> None:
    ended = run(database, f"$pgrouse {command}")

    assert (ended.returncode, ended.stderr) == (1, said)


@pytest.mark.long
@pytest.mark.parametrize("how", ["2>&-", "2>/dev/full", "<&-", "<&- 2>&-"])
def test_a_result_needs_no_other_stream(database: Database, how: str) -> None:
    ended = run(database, f"$pgrouse --json topic show '*' {how}")

    assert ended.returncode == 0
    assert '"topic": "*"' in ended.stdout


@pytest.mark.parametrize("how", ["2>&-", "2>/dev/full", ">&- 2>&- <&-"])
def test_an_error_that_cannot_be_written_keeps_its_exit_code(database: Database, how: str) -> None:
    assert run(database, f"$pgrouse nonsense {how}").returncode == 2


def test_an_error_whose_reader_is_gone_keeps_its_exit_code(database: Database) -> None:
    assert run(database, "$pgrouse nonsense 2>&1 >/dev/null | true; exit ${PIPESTATUS[0]}").returncode == 2


@pytest.mark.long
def test_top_without_streams_is_refused_as_without_a_terminal(database: Database) -> None:
    assert run(database, "$pgrouse top <&- >&- 2>&-").returncode == 2


@pytest.mark.long
def test_what_an_encoding_cannot_show_is_escaped(database: Database, queue: Queue) -> None:
    queue.publish("t", key="schlüssel")

    ended = run(database, "env -u HOME $pgrouse message list", LC_ALL="C", PYTHONIOENCODING="ascii", PYTHONUTF8="0")

    assert (ended.returncode, ended.stderr) == (0, "")
    assert "schl\\xfcssel" in ended.stdout


@pytest.mark.long
def test_a_slow_reader_of_a_pipe_that_others_made_non_blocking_gets_everything(
    database: Database, queue: Queue
) -> None:
    queue.publish_many(3000, "t")
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    process = subprocess.Popen(
        [PGROUSE, "--json", "message", "list", "--limit", "3000"],
        env={**os.environ, "PGROUSE_DSN": database.dsn},
        stdout=writing,
        stderr=subprocess.DEVNULL,
    )
    os.close(writing)

    with process, os.fdopen(reading, "rb") as pipe:
        eventually(lambda: _bytes_in(reading) > PIPE_BYTES - 4096)
        got = pipe.read()

    assert process.returncode == 0
    assert len(got.splitlines()) == 3000


def _bytes_in(pipe: int) -> int:
    (count,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))
    return int(count)
