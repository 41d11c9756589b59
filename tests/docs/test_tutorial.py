"""docs/tutorial.md does what it says, from top to bottom."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.page import ROOT, Block, Page
from tests.server.postgres import Database

PAGE = Page("docs/tutorial.md")
COMMANDS = Path(sys.executable).parent
# What differs from run to run: moments, ages, workers, and the width of the columns they stand in. The number of files of the schema
# differs from version to version.
VARIES = (
    (r"\b\d+ files applied", "FILES applied"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\+0000", "MOMENT"),
    (r"\b\d+(\.\d+)?(ms|s|m)\b", "TIME"),
    (r"\S+:\d+:[0-9a-f]{4}(/\d+)?", "WORKER"),
    (r"(WORKER +working .*TIME) +\S+ +\d+", r"\1 HOST PID"),
    (r" +", " "),
    (r"redriven from(\d)", r"redriven from \1"),
)
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
    """Somebody who does what the page says, in a folder of his own, with a second terminal for the daemon."""

    def __init__(self, folder: Path, database: Database, eventually: Callable[..., Any]) -> None:
        self.folder, self.database, self.eventually = folder, database, eventually
        self.daemon: subprocess.Popen[bytes] | None = None
        self.env = {
            "PATH": f"{self._own_psql()}:{COMMANDS}:{os.environ['PATH']}",
            "PGROUSE_DSN": database.dsn,
            "COLUMNS": "120",
            "HOME": str(folder),
        }

    def follow(self, block: Block) -> str:
        """Do what a block says; return what it would show: commands with their output, or the text as it is."""
        words = block.kind.split()
        if words == ["console", "runnable"]:
            return "\n".join(self._command(line) for line in block.text.split("\n") if line.startswith("$ "))
        if words == ["console", "daemon"]:
            self.stop_the_daemon()
            self._start_the_daemon()
        elif len(words) == 2:
            (self.folder / words[1]).write_text(block.text + "\n")
        return block.text

    def stop_the_daemon(self) -> None:
        if self.daemon is not None:
            self.daemon.send_signal(signal.SIGINT)
            assert self.daemon.wait(timeout=20) == 130
            self.daemon = None

    def _start_the_daemon(self) -> None:
        self.daemon = subprocess.Popen(["pgrouse", "run"], cwd=self.folder, env=self.env, stderr=subprocess.DEVNULL)
        self.eventually(lambda: self._ask("SELECT count(*) FROM messages.worker"))

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
            self.eventually(lambda: not self._ask(BUSY))
        return "\n".join([line, *(done.stdout + done.stderr).rstrip("\n").splitlines()])

    def _ask(self, query: str) -> int:
        with self.database.server.admin(self.database.name) as conn:
            row: Any = conn.execute(query.encode()).fetchone()
            return int(row[0])

    def _own_psql(self) -> Path:
        """Return a folder with a psql: there need not be one where the tests run."""
        folder = self.folder / ".bin"
        folder.mkdir()
        (folder / "psql").write_text(PSQL.format(python=sys.executable, root=str(ROOT)))
        (folder / "psql").chmod(0o755)
        return folder


@pytest.fixture
def reader(tmp_path: Path, empty_database: Database, eventually: Callable[..., Any]) -> Iterator[Reader]:
    reader = Reader(tmp_path, empty_database, eventually)
    yield reader
    reader.stop_the_daemon()


def test_the_tutorial_prints_what_it_shows_from_top_to_bottom(reader: Reader) -> None:
    blocks = [block for block in PAGE.blocks if " " in block.kind]

    done = [(block.line, steady(reader.follow(block))) for block in blocks]

    assert len(blocks) > 8
    assert done == [(block.line, steady(block.text)) for block in blocks]


def steady(text: str) -> str:
    """Return the text without what varies."""
    for pattern, word in VARIES:
        text = re.sub(pattern, word, text)
    return "\n".join(line.rstrip() for line in text.split("\n") if line.strip())
