"""The cursor of an export in the database: what the retention waits for, and what keeps two exporters apart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgrouse.errors import ConfigError, ExitCode, PgrouseError
from pyspark_pgrouse.connection import check
from pyspark_pgrouse.position import Position

if TYPE_CHECKING:
    import psycopg

OPEN = """
    SELECT o.lake, o.lake_id, o.system_identifier, o.xid::text, o.id
    FROM messages.open_export(%(name)s, %(lake)s, %(lake_id)s, %(xid)s::xid8, %(id)s) AS o"""
FIND = """
    SELECT c.lake, c.lake_id, c.system_identifier, c.xid::text, c.id FROM messages.export_cursor AS c WHERE c.name = %s"""
ADVANCE = "SELECT messages.advance_export(%s, %s::xid8, %s, %s::xid8, %s)"
FORGET = "SELECT messages.delete_export(%s)"
# A machine that vanished while it exported should not hold the export for as long as the server's system believes in it.
NOTICE = "SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3"
LOCK = "SELECT messages.lock_export(%s)"
UNLOCK = "SELECT messages.unlock_export(%s)"


class ExportConflict(PgrouseError):
    """Another process works on this export, or did meanwhile. What it wrote stands; nothing of this one does."""

    exit_code = ExitCode.TRY_AGAIN


@dataclass(frozen=True)
class ExportCursor:
    """How far an export is.

    Attributes:
        name: of the export.
        lake: where it writes to, as it was said when it was opened.
        lake_id: what tells that lake from every other.
        position: the last row that it has written.
    """

    name: str
    lake: str
    lake_id: str
    position: Position

    @classmethod
    def opened(
        cls, conn: psycopg.Connection[Any], name: str, lake: str, lake_id: str, position: Position
    ) -> ExportCursor:
        """Open the export at a position, unless it is open already; return it as it stands."""
        values = {"name": name, "lake": lake, "lake_id": lake_id, "xid": position.xid, "id": position.id}
        found: Any = conn.execute(OPEN, values).fetchone()
        return cls(name, found[0], found[1], Position(found[2], found[3], found[4]))

    @classmethod
    def find(cls, conn: psycopg.Connection[Any], name: str) -> ExportCursor | None:
        """Return the export of this name; None if there is none."""
        found: Any = conn.execute(FIND, [name]).fetchone()
        return cls(name, found[0], found[1], Position(found[2], found[3], found[4])) if found else None

    def advance(self, conn: psycopg.Connection[Any], end: Position) -> ExportCursor:
        """Move it on, and return it as it then stands.

        Raises:
            ExportConflict: it does not stand where it did.
        """
        at = self.position
        moved: Any = conn.execute(ADVANCE, [self.name, at.xid, at.id, end.xid, end.id]).fetchone()
        if not moved[0]:
            raise ExportConflict(
                f"export {self.name} was moved or given up by somebody else meanwhile: run it again if it is still wanted"
            )
        return ExportCursor(self.name, self.lake, self.lake_id, end)


@contextmanager
def held(conn: psycopg.Connection[Any], name: str) -> Iterator[None]:
    """Be the only one that works on an export, as long as the connection lives.

    Raises:
        ExportConflict: somebody else is.
        SchemaMismatch: the schema is not there, or too old for an export.
        ConfigError: this role may not do it.
    """
    check(conn, "lease", ["name"])
    conn.execute(NOTICE)
    row: Any = conn.execute(LOCK, [name]).fetchone()
    if not row[0]:
        raise ExportConflict(f"export {name} is being run by another process: wait for it, or use another --name")
    try:
        yield
    finally:
        if not conn.closed and not conn.broken:
            conn.execute(UNLOCK, [name])


def forget(conn: psycopg.Connection[Any], name: str) -> None:
    """Give an export up: the retention waits for it no longer.

    Raises:
        ConfigError: there is none of this name.
    """
    row: Any = conn.execute(FORGET, [name]).fetchone()
    if not row[0]:
        raise ConfigError(f"there is no export {name}: `pgrouse stats` names those that hold the archive")
