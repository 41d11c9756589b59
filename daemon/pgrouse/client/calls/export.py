"""Exports of the archive: their cursors, and who works on them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pgrouse.client.call import Call, binding


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
    """A row of `messages.list_exports`.

    Attributes:
        lake: where it writes to.
        advanced_at: when it last moved on; None: never.
        oldest_at: when the first message ended that it has not read; None: it has read everything.
        held_since: since when the retention waits for it; None: it does not.
    """

    name: str
    lake: str
    advanced_at: datetime | None
    oldest_at: datetime | None
    held_since: datetime | None


@binding
def open_export(name: str, lake: str, lake_id: str, xid: str | None = None, id: int | None = None) -> Call[OpenExport]:
    """Return the cursor of an export; create it if there is none."""


@binding
def advance_export(name: str, from_xid: str, from_id: int, xid: str, id: int) -> Call[bool]:
    """Move the cursor of an export."""


@binding
def delete_export(name: str) -> Call[bool]:
    """Delete an export, so that the retention no longer waits for it."""


@binding
def list_exports() -> Call[list[ExportStatus]]:
    """List the exports."""


@binding
def lock_export(name: str) -> Call[bool]:
    """Reserve an export for this session."""


@binding
def unlock_export(name: str) -> Call[bool]:
    """Unlock an export."""
