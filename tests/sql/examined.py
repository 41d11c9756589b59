"""What a part of the doctor says, for the tests of those parts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.sql.queue import Queue, Row


class Examined:
    """What one part said.

    Attributes:
        rows: all of it.
    """

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows

    @property
    def wrong(self) -> dict[str, str]:
        """The codes with something wrong, and how bad the worst of it is."""
        return {
            row.code: row.level for row in sorted(self.rows, key=lambda row: row.level != "warn") if row.level != "ok"
        }

    def of(self, code: str) -> Row:
        """Return what is said of one code, which must be one thing."""
        (row,) = [row for row in self.rows if row.code == code]
        return row

    def said(self, code: str) -> str:
        """Return everything that is said of one code: what, and the fixes."""
        return "\n".join(f"{row.what}\n{row.fix}" for row in self.rows if row.code == code)


def examine(queue: Queue, part: str, *arguments: Any) -> Examined:
    """Ask one part."""
    places = ", ".join(["%s"] * len(arguments))
    return Examined(queue.rows(f"SELECT * FROM messages.examine_{part}({places})", arguments))


@contextmanager
def undone(queue: Queue, *statements: str) -> Iterator[None]:
    """Let statements be true for a while, as seen from this connection only; then nothing of it ever was."""
    with queue.conn.transaction(force_rollback=True):
        for each in statements:
            queue.conn.execute(each.encode())
        yield
