"""A reader who follows a page: runs its commands, saves its files, and keeps a daemon in a second terminal."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.docs.page import ROOT, Block
from tests.server.postgres import Database

COMMANDS = Path(sys.executable).parent
PSQL = """#!{python}
import sys, psycopg
sys.path.insert(0, {root!r})
from tests.docs.psql import Psql
print(Psql(psycopg.connect(sys.argv[1], autocommit=True)).run(sys.argv[3] + ";"))
"""
BUSY = """
    SELECT count(*) FROM messages.message
    WHERE claim_id IS NOT NULL OR available_at < clock_timestamp() + interval '1 s'
"""


class Reader:
    """A reader who follows a page, in a folder, with a second terminal for the daemon.

    Args:
        folder: where the files are saved.
        database: where the commands work.
        eventually: waits for a condition.
        busy: a query whose result is 0 once the daemon has nothing to do.
        environment: the virtual environment of the commands; that of the tests unless given.
    """

    def __init__(
        self,
        folder: Path,
        database: Database,
        eventually: Callable[..., Any],
        busy: str = BUSY,
        environment: Path | None = None,
    ) -> None:
        self.folder, self.database, self.eventually, self.busy = folder, database, eventually, busy
        commands = COMMANDS if environment is None else environment / "bin"
        self.daemon: subprocess.Popen[bytes] | None = None
        self.server: subprocess.Popen[bytes] | None = None
        self.env = {
            "PATH": f"{self._own_psql()}:{commands}:{os.environ['PATH']}",
            "PGROUSE_DSN": database.dsn,
            "COLUMNS": "120",
            "HOME": str(folder),
        }

    def follow(self, block: Block) -> str:
        """Do what a block says; return what it would show: commands with their output, or the text unchanged."""
        words = block.kind.split()
        if words == ["console", "runnable"]:
            return "\n".join(self._command(line) for line in block.text.split("\n") if line.startswith("$ "))
        if words == ["console", "daemon"]:
            self.stop_the_daemon()
            self._start_the_daemon(block.text)
        elif words == ["console", "server"]:
            self._start_the_server(block.text)
        elif len(words) == 2:
            (self.folder / words[1]).write_text(block.text + "\n")
        return block.text

    def stop_the_daemon(self) -> None:
        if self.daemon is not None:
            self.daemon.send_signal(signal.SIGINT)
            assert self.daemon.wait(timeout=60) == 130
            self.daemon = None

    def stop(self) -> None:
        """Stop everything that runs."""
        self.stop_the_daemon()
        if self.server is not None:
            self.server.terminate()
            self.server.wait(timeout=60)

    def _start_the_daemon(self, line: str) -> None:
        self.daemon = self._start(line)
        self.eventually(lambda: self._ask("SELECT count(*) FROM messages.worker"))

    def _start_the_server(self, line: str) -> None:
        """Start a web server, and wait until it listens at the port that the line ends with."""
        port = int(line.rsplit(maxsplit=1)[-1])
        self.server = self._start(line)
        self.eventually(lambda: _listens(port))

    def _start(self, line: str) -> subprocess.Popen[bytes]:
        command = shlex.split(line.removeprefix("$ "))
        command[0] = shutil.which(command[0], path=self.env["PATH"]) or command[0]
        return subprocess.Popen(command, cwd=self.folder, env=self.env, stderr=subprocess.DEVNULL)

    def _command(self, line: str) -> str:
        done = subprocess.run(
            ["bash", "-c", line.removeprefix("$ ")],
            cwd=self.folder,
            env=self.env,
            text=True,
            capture_output=True,
            check=False,
        )
        if self.daemon is not None:
            self.eventually(lambda: not self._ask(self.busy))
        return "\n".join([line, *(done.stdout + done.stderr).rstrip("\n").splitlines()])

    def _ask(self, query: str) -> int:
        with self.database.server.admin(self.database.name) as conn:
            row: Any = conn.execute(query.encode()).fetchone()
            return int(row[0])

    def _own_psql(self) -> Path:
        """Return a folder with a psql, since the machine of the tests may have none."""
        folder = self.folder / ".bin"
        folder.mkdir()
        (folder / "psql").write_text(PSQL.format(python=sys.executable, root=str(ROOT)))
        (folder / "psql").chmod(0o755)
        return folder


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def steady(text: str, varies: Sequence[tuple[str, str]]) -> str:
    """Return the text without parts that vary: each pattern becomes its word."""
    for pattern, word in varies:
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    return "\n".join(line.rstrip() for line in text.split("\n") if line.strip())
