"""The command line for tests."""

from __future__ import annotations

import io
import json
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pgrouse.cli import main

PGROUSE = str(Path(sysconfig.get_path("scripts")) / "pgrouse")


@dataclass(frozen=True)
class Ended:
    """A finished command: its exit code and what it printed."""

    code: int
    out: str
    err: str

    @property
    def objects(self) -> list[dict[str, Any]]:
        """The JSON objects, one per line."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def object(self) -> dict[str, Any]:
        """The only JSON object."""
        (found,) = self.objects
        return found

    @property
    def table(self) -> list[dict[str, str]]:
        """The rows of a table whose values contain no blanks, by heading."""
        heading, *lines = [line.split() for line in self.out.splitlines()]
        return [dict(zip(heading, line, strict=True)) for line in lines]


class Shell:
    """Runs commands in this process: a process for each would take half a second."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *arguments: object, stdin: str | bytes = b"") -> Ended:
        """Run `pgrouse` with these arguments, to its end."""
        data = stdin.encode() if isinstance(stdin, str) else stdin
        self._monkeypatch.setattr(sys, "argv", ["pgrouse", *map(str, arguments)])
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        self._capsys.readouterr()
        code = main()
        return Ended(code, *self._capsys.readouterr())
