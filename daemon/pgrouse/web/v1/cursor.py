"""Cursors of paged lists: where the next page begins, as opaque text."""

from __future__ import annotations

import base64
import json
from typing import Any

from pgrouse.web.http.problem import Problem


def encode(kind: str, position: Any) -> str | None:
    """Encode a position as a cursor; None is the end of the list."""
    if position is None:
        return None
    text = json.dumps([kind, position], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode(kind: str, cursor: str | None) -> Any:
    """Decode a cursor of this kind into a position; None is the beginning of the list.

    Raises:
        Problem: 422, it is not a valid cursor.
    """
    if not cursor:
        return None
    try:
        found, position = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, TypeError, RecursionError):
        found, position = None, None
    if found != kind:
        raise Problem(422, "cursor: not a cursor of this list; use `next` of the previous page", "invalid_cursor")
    return position


def decode_id(kind: str, cursor: str | None) -> int | None:
    """Decode a cursor whose position is an id."""
    position = decode(kind, cursor)
    if position is not None and (
        not isinstance(position, int) or isinstance(position, bool) or not 0 <= position < 2**63
    ):
        raise Problem(422, "cursor: not a cursor of this list; use `next` of the previous page", "invalid_cursor")
    return position
