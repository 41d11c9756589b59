"""The command `pgrouse top`: where it can run, and how it ends. Its view is tested by tests/top."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from tests.cli.shell import PGROUSE, Shell
from tests.server.deadline import eventually
from tests.server.postgres import Database


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_top_without_a_terminal_names_the_alternative(pgrouse: Shell, options: list[str]) -> None:
    done = pgrouse("top", *options)

    assert done.code == 2
    assert "pgrouse stats --watch" in done.err


def test_top_without_textual_names_the_package_to_install(pgrouse: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ["textual", *(name for name in sys.modules if name.startswith("textual."))]:
        monkeypatch.setitem(sys.modules, name, None)
    for name in [name for name in sys.modules if name.startswith("pgrouse.cli.top.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("pgrouse.cli.operate.top._is_on_terminal", lambda: True)

    done = pgrouse("top")

    assert done.code == 78
    assert done.err == "pgrouse: textual is not installed: pip install 'pgrouse[top]'\n"


@pytest.mark.long
def test_top_draws_on_a_terminal_and_q_restores_the_terminal(database: Database) -> None:
    ours, theirs = pty.openpty()
    environ = {**os.environ, "TERM": "xterm-256color", "PGROUSE_DSN": database.dsn, "COLUMNS": "80", "LINES": "24"}
    process = subprocess.Popen([PGROUSE, "top"], stdin=theirs, stdout=theirs, stderr=theirs, env=environ)
    os.close(theirs)
    written = b""

    def shows(text: bytes) -> bool:
        nonlocal written
        try:
            written += os.read(ours, 65536)
        except OSError:  # Linux reports the closed other side so
            return True
        return text in written

    eventually(lambda: shows(b"no topic yet"))
    os.write(ours, b"q")
    eventually(lambda: shows(b"\x1b[?1049l"))

    assert process.wait(60) == 0
    # No background of its own, so that it also suits a light terminal.
    assert b"8;2;" not in written
    assert b"8;5;" not in written
    os.close(ours)
