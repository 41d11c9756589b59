"""The cursor of an export in the database: the retention waits for it, and it keeps two exporters apart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgrouse.client.call import run
from pgrouse.client.calls.export import advance_export, delete_export, lock_export, open_export, unlock_export
from pgrouse.errors import ConfigError, ExitCode, PgrouseError
from pyspark_pgrouse.connection.connection import check
from pyspark_pgrouse.read.position import Position

if TYPE_CHECKING:
    import psycopg

# If a machine vanishes during an export, the export should not stay locked for as long as the server's system takes to
# notice.
NOTICE = "SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3"


class ExportConflict(PgrouseError):
    """Another process runs this export, or did so in the meantime.

    The rows that it wrote are kept; those of this process are not.
    """

    exit_code = ExitCode.TRY_AGAIN


@dataclass(frozen=True)
class ExportCursor:
    """How far an export is.

    Attributes:
        name: the name of the export.
        lake: the place that it writes to, as given when it was opened.
        lake_id: identifies that lake.
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
        """Open the export at a position, unless it is open already; return it."""
        found = run(conn, open_export(name, lake, lake_id, position.xid, position.id))
        return cls(name, found.lake, found.lake_id, Position(position.queue, found.xid, found.id))

    def advance(self, conn: psycopg.Connection[Any], end: Position) -> ExportCursor:
        """Move the cursor to `end`, and return it.

        Raises:
            ExportConflict: it is no longer at its old position.
        """
        at = self.position
        if not run(conn, advance_export(self.name, at.xid, at.id, end.xid, end.id)):
            raise ExportConflict(
                f"export {self.name} was moved or given up by another process in the meantime: "
                "run it again if it is still wanted"
            )
        return ExportCursor(self.name, self.lake, self.lake_id, end)


@contextmanager
def held(conn: psycopg.Connection[Any], name: str) -> Iterator[None]:
    """Ensure that no other process runs an export, as long as the connection lives.

    Raises:
        ExportConflict: another process runs it.
        SchemaMismatch: the schema does not exist, or is too old for an export.
        ConfigError: this role may not run it.
    """
    check(conn, "lease", ["name"])
    conn.execute(NOTICE)
    if not run(conn, lock_export(name)):
        raise ExportConflict(f"export {name} is being run by another process: wait for it, or use another --name")
    try:
        yield
    finally:
        if not conn.closed and not conn.broken:
            run(conn, unlock_export(name))


def forget(conn: psycopg.Connection[Any], name: str) -> None:
    """Delete an export: the retention no longer waits for it.

    Raises:
        ConfigError: there is no export with this name.
    """
    if not run(conn, delete_export(name)):
        raise ConfigError(f"there is no export {name}: `pgrouse stats` names those that hold the archive")
