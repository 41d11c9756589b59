"""Exports that hold rows of the archive, for the tests of retention."""

from __future__ import annotations

from tests.sql.queue import Queue

POSITION = "SELECT a.archive_xid::text AS xid, a.id FROM messages.message_archive AS a WHERE a.id = %s"
OPEN = "SELECT * FROM messages.open_export(%s, %s, %s, %s::xid8, %s)"


def export(queue: Queue, name: str = "e", upto: int | None = None) -> None:
    """Open an export that has read the archive up to this message; None = nothing of it."""
    at = queue.row(POSITION, [upto]) if upto is not None else None
    queue.row(OPEN, [name, "/lake", "1-2-3", at.xid if at else "0", at.id if at else 0])


def from_elsewhere(queue: Queue, name: str = "e") -> None:
    """Make an export one of another cluster, as in a restored dump."""
    queue.conn.execute("UPDATE messages.export_cursor SET system_identifier = '1' WHERE name = %s", [name])
