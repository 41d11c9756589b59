"""Exports of the archive: their cursors, and who works on them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pgrouse.client.call import Call, function_call, row_call, rows_call, value


@dataclass(frozen=True, slots=True)
class OpenExport:
    """How far an export is.

    Attributes:
        lake: where it writes to.
        lake_id: what distinguishes that lake from every other.
        system_identifier: of the cluster whose transaction ids count.
        xid: with id, the last row that it has written.
    """

    lake: str
    lake_id: str
    system_identifier: str
    xid: str
    id: int
    advanced_at: datetime | None


@dataclass(frozen=True, slots=True)
class ExportStatus:
    """An export, and whether the retention waits for it.

    Attributes:
        oldest_at: when the first row that it has not read was archived; None = it has read everything.
        held_since: since when the retention waits for it; None = it does not.
    """

    name: str
    lake: str
    advanced_at: datetime | None
    oldest_at: datetime | None
    held_since: datetime | None


def open_export(name: str, lake: str, lake_id: str, xid: str | None = None, id: int | None = None) -> Call[OpenExport]:
    """Create the cursor of an export at a position, unless there is one; returns it."""
    return row_call("open_export", OpenExport, name=name, lake=lake, lake_id=lake_id, xid=xid, id=id)


def advance_export(name: str, from_xid: str, from_id: int, xid: str, id: int) -> Call[bool]:
    """Move the cursor of an export from one position to another; whether it was there."""
    return function_call("advance_export", value, name=name, from_xid=from_xid, from_id=from_id, xid=xid, id=id)


def delete_export(name: str) -> Call[bool]:
    """Delete an export, so that the retention no longer waits for it; whether there was one."""
    return function_call("delete_export", value, name=name)


def list_exports() -> Call[list[ExportStatus]]:
    """List the exports."""
    return rows_call("list_exports", ExportStatus)


def lock_export(name: str) -> Call[bool]:
    """Reserve an export for this session; whether no other one has it."""
    return function_call("lock_export", value, name=name)


def unlock_export(name: str) -> Call[bool]:
    """Release an export that this session has reserved; whether it had."""
    return function_call("unlock_export", value, name=name)
