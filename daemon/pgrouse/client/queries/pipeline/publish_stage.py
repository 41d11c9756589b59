"""The stage of bulk publishing: how rows come into it, and whether this role may use it."""

from __future__ import annotations

from collections.abc import Sequence

from pgrouse.client.call import Call, pair

USABLE = b"""
    SELECT to_regproc('messages.begin_staging') IS NOT NULL,
           coalesce(
             has_schema_privilege(to_regnamespace('messages')::oid, 'USAGE')
             AND has_function_privilege(to_regproc('messages.begin_staging')::oid, 'EXECUTE'), false)"""
COPY_REJECTED = b"COPY messages.publish_stage (attempt, reason, given) FROM STDIN (ENCODING 'UTF8')"


def may_stage() -> Call[tuple[bool, bool]]:
    """Say whether bulk publishing is installed, and whether this role may use it."""
    return Call(USABLE, [], pair)


def copy_staged(names: Sequence[str]) -> bytes:
    """Return the COPY of rows with these columns, in the binary format; the number of the attempt comes first."""
    columns = ", ".join(["attempt", *names])
    return f"COPY messages.publish_stage ({columns}) FROM STDIN (FORMAT binary, ENCODING 'UTF8')".encode()
