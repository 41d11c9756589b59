"""The view of batches: how it is read."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pgrouse.client.call import Call, select_call
from pgrouse.client.calls.batch import BatchState

BatchWord = Literal["open", "closed", "cancelled", "finished"]
PAGE = (
    "WHERE (%(state)s::pg_catalog.text IS NULL OR f.state OPERATOR(pg_catalog.=) %(state)s)"
    " AND (%(creator)s::pg_catalog.text IS NULL OR f.created_by OPERATOR(pg_catalog.=) %(creator)s)"
    " AND (%(since)s::pg_catalog.timestamptz IS NULL OR f.created_at OPERATOR(pg_catalog.>=) %(since)s)"
    " AND (%(until)s::pg_catalog.timestamptz IS NULL OR f.created_at OPERATOR(pg_catalog.<) %(until)s)"
    " AND (%(before)s::bigint IS NULL OR f.id OPERATOR(pg_catalog.<) %(before)s)"
    " ORDER BY f.id DESC LIMIT %(most)s"
)


def find_batches(
    state: BatchWord | None = None,
    *,
    creator: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    before: int | None = None,
    most: int = 100,
) -> Call[list[BatchState]]:
    """List batches, the newest first.

    Args:
        state: only batches in this state.
        creator: only those that this role or token created.
        since: only those that were created at this time or later.
        until: only those that were created before this time.
        before: only those with a lower id: the last one of the previous page.
        most: at most this many.
    """
    values = {"state": state, "creator": creator, "since": since, "until": until, "before": before, "most": most}
    return select_call("batch_state", BatchState, PAGE, **values)
