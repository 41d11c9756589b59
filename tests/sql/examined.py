"""Findings of one part of the doctor, for the tests of these parts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.sql.queue import Queue, Row


class Examined:
    """The findings of one part.

    Attributes:
        rows: all findings.
    """

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows

    @property
    def wrong(self) -> dict[str, str]:
        """Return the codes with a problem, each with its worst severity."""
        return {
            row.code: row.level for row in sorted(self.rows, key=lambda row: row.level != "warn") if row.level != "ok"
        }

    def of(self, code: str) -> Row:
        """Return the only finding with this code."""
        (row,) = [row for row in self.rows if row.code == code]
        return row

    def text_of(self, code: str) -> str:
        """Return all text of the findings with this code: what, and the fixes."""
        return "\n".join(f"{row.what}\n{row.fix}" for row in self.rows if row.code == code)


def examine(queue: Queue, part: str, *arguments: Any) -> Examined:
    """Run one part."""
    parameters = ", ".join(["%s"] * len(arguments))
    return Examined(queue.rows(f"SELECT * FROM messages.examine_{part}({parameters})", arguments))


def examine_and_fix(queue: Queue, part: str, code: str) -> tuple[Examined, Examined]:
    """Run one part, then the fix of its only finding with this code, then the part again."""
    found = examine(queue, part)
    queue.conn.execute(found.of(code).fix.encode())
    return found, examine(queue, part)


@contextmanager
def rolled_back(queue: Queue, *statements: str) -> Iterator[None]:
    """Run statements in a transaction that is rolled back at the end: only this connection sees their effect."""
    with queue.conn.transaction(force_rollback=True):
        for each in statements:
            queue.conn.execute(each.encode())
        yield
