"""A session that prints as psql does, so that a page shows what its reader sees."""

from __future__ import annotations

import re
from collections.abc import Iterator

import psycopg
from psycopg.rows import TupleRow

# The types that psql aligns right: int8, int2, int4, oid, float4, float8, numeric.
NUMBERS = {20, 21, 23, 26, 700, 701, 1700}


class Psql:
    """One session. Contexts of errors and warnings are left out, as after `\\set SHOW_CONTEXT never`."""

    def __init__(self, conn: psycopg.Connection[TupleRow]) -> None:
        self.conn = conn
        self._said: list[str] = []
        conn.add_notice_handler(self._on_notice)
        conn.add_notify_handler(self._notified)
        self._notifications: list[str] = []

    def run(self, script: str) -> str:
        """Run a script, and return what psql would print."""
        self._said.clear()
        for statement in statements(script):
            self._run(statement)
        return "\n".join(self._said)

    def _run(self, statement: str) -> None:
        try:
            cursor = self.conn.execute(statement.encode())
        except psycopg.Error as error:
            self._said += _complaint("ERROR", error.diag)
            return
        if cursor.description is not None:
            self._said += table(cursor)
        if cursor.statusmessage is not None and not cursor.statusmessage.startswith("SELECT"):
            self._said.append(cursor.statusmessage)
        self._said += self._notifications
        self._notifications.clear()

    def _on_notice(self, notice: psycopg.errors.Diagnostic) -> None:
        self._said += _complaint(str(notice.severity), notice)

    def _notified(self, notify: psycopg.Notify) -> None:
        payload = f" with payload {notify.payload!r}".replace("'", '"') if notify.payload else ""
        self._notifications.append(
            f'Asynchronous notification "{notify.channel}"{payload} received from server process with PID {notify.pid}.'
        )


def statements(script: str) -> Iterator[str]:
    """Yield the statements of a script, each of which ends a line."""
    statement = ""
    for line in script.split("\n"):
        statement += line + "\n"
        if line.rstrip().endswith(";") and statement.count("$$") % 2 == 0:
            yield statement
            statement = ""
    assert not re.sub(r"--.*", "", statement).strip(), f"this statement has no end: {statement}"


def table(cursor: psycopg.Cursor[TupleRow]) -> list[str]:
    """Return the lines of a result."""
    result, columns = cursor.pgresult, cursor.description
    assert result is not None
    assert columns is not None
    titles = [column.name for column in columns]
    rows = [
        [(result.get_value(row, column) or b"").decode() for column in range(len(titles))]
        for row in range(result.ntuples)
    ]
    widths = [max(len(cell) for cell in cells) for cells in zip(titles, *rows, strict=True)]
    lines = ["|".join(f" {_centred(title, width)} " for title, width in zip(titles, widths, strict=True))]
    lines.append("+".join("-" * (width + 2) for width in widths))
    for row in rows:
        cells = zip(row, widths, columns, strict=True)
        lines.append(
            "|".join(f" {cell.rjust(w) if c.type_code in NUMBERS else cell.ljust(w)} " for cell, w, c in cells)
        )
    return [*lines, f"({len(rows)} row{'' if len(rows) == 1 else 's'})", ""]


def same(text: str) -> list[str]:
    """Return the lines of an output without parts that differ from run to run."""
    text = re.sub(r"with PID \d+", "with PID 4711", text)
    return [line.rstrip() for line in text.split("\n") if line.strip()]


def _centred(title: str, width: int) -> str:
    left = (width - len(title)) // 2
    return (" " * left + title).ljust(width)


def _complaint(severity: str, diag: psycopg.errors.Diagnostic) -> list[str]:
    parts = [(severity, diag.message_primary), ("DETAIL", diag.message_detail), ("HINT", diag.message_hint)]
    return [f"{name}:  {text}" for name, text in parts if text]
