"""Exports of the archive: their cursors, and who works on them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pgrouse.client.call import Call, function_call, row_call, rows_call, value


@dataclass(frozen=True, slots=True)
class OpenExport:
    """The row of `messages.open_export`."""

    lake: str
    lake_id: str
    system_identifier: str
    xid: str
    id: int
    advanced_at: datetime | None


@dataclass(frozen=True, slots=True)
class ExportStatus:
    """A row of `messages.list_exports`."""

    name: str
    lake: str
    advanced_at: datetime | None
    oldest_at: datetime | None
    held_since: datetime | None


def open_export(name: str, lake: str, lake_id: str, xid: str | None = None, id: int | None = None) -> Call[OpenExport]:
    """Return the cursor of an export; create it if there is none."""
    return row_call("open_export", OpenExport, name=name, lake=lake, lake_id=lake_id, xid=xid, id=id)


def advance_export(name: str, from_xid: str, from_id: int, xid: str, id: int) -> Call[bool]:
    """Move the cursor of an export."""
    return function_call("advance_export", value, name=name, from_xid=from_xid, from_id=from_id, xid=xid, id=id)


def delete_export(name: str) -> Call[bool]:
    """Delete an export, so that the retention no longer waits for it."""
    return function_call("delete_export", value, name=name)


def list_exports() -> Call[list[ExportStatus]]:
    """List the exports."""
    return rows_call("list_exports", ExportStatus)


def lock_export(name: str) -> Call[bool]:
    """Reserve an export for this session."""
    return function_call("lock_export", value, name=name)


def unlock_export(name: str) -> Call[bool]:
    """Unlock an export."""
    return function_call("unlock_export", value, name=name)
