"""The output of commands: a table on a terminal, plain lines into a pipe, JSON with --json.

Data from the database may come from anybody: it never reaches a terminal as control characters or markup.
"""

from __future__ import annotations

import base64
import json
import shutil
import sys
import textwrap
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pgrouse.errors import ExitCode
from pgrouse.terminal.extras import has_rich
from pgrouse.terminal.table import Column, Row, plain_table
from pgrouse.values.format import harmless
from pgrouse.values.jsonb import Raw


class Output:
    """Prints results to the standard output, and notes to the standard error."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    @property
    def on_terminal(self) -> bool:
        """Whether a person reads the results."""
        return sys.stdout.isatty() and not self.as_json

    def rows(self, columns: list[Column], rows: Iterable[Row], empty: str) -> int:
        """Print rows as a table, or as JSON with all their values, one object per line; return how many there are.

        empty: what to say if there are none.
        """
        rows = list(rows)
        for row in rows:
            self.record(row)
        if rows and not self.as_json:
            self._table(columns, rows)
        elif not self.as_json:
            self.note(empty)
        return len(rows)

    def _table(self, columns: list[Column], rows: list[Row]) -> None:
        columns = [c for c in columns if not c.optional or any(row[c.key] is not None for row in rows)]
        if not self.on_terminal or not has_rich():
            print(plain_table(columns, rows))  # noqa: T201
            return
        from pgrouse.terminal.rich_table import print_table  # noqa: PLC0415 - slow to import: only terminals need rich

        print_table(columns, rows)

    def record(self, row: Row) -> None:
        """Print one JSON object; people are told by `say`."""
        if self.as_json:
            print(to_json(row), flush=True)  # noqa: T201

    def result(self, done: object, said: str, problem: str, **facts: Any) -> int:
        """Print what a command did, or the problem if it did nothing; return its exit code. facts: what JSON says."""
        self.record(facts)
        if not done:
            self.problem(problem)
            return ExitCode.FOUND_A_PROBLEM
        self.say(said)
        return ExitCode.OK

    def done(self, said: str, **facts: Any) -> None:
        """Print what a command did. facts: what JSON says."""
        self.record(facts)
        self.say(said)

    def say(self, text: str) -> None:
        """Print a line for people; JSON has its own."""
        if not self.as_json:
            print(harmless(text), flush=True)  # noqa: T201

    def problem(self, text: str) -> None:
        """Print a problem to the standard error, in the form of errors that end a command."""
        self.note(f"pgrouse: {text}")

    def note(self, text: str) -> None:
        """Print a remark to the standard error."""
        print(folded(harmless(text)), file=sys.stderr, flush=True)  # noqa: T201


def folded(text: str) -> str:
    """Break a long line between words, but only for a terminal."""
    if not sys.stderr.isatty():
        return text
    width = shutil.get_terminal_size().columns
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)


def to_json(row: Row) -> str:
    """Write one object on one line; JSON from the database goes in as it is, every digit of it."""
    return "{" + ", ".join(f"{json.dumps(key)}: {_json_value(value)}" for key, value in row.items()) + "}"


def _json_value(value: Any) -> str:
    return value.text if isinstance(value, Raw) else json.dumps(value, default=_plain)


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case bytes():
            return {"base64": base64.b64encode(value).decode()}
        case Path():
            return str(value)
        case _:
            raise TypeError(type(value).__name__)
