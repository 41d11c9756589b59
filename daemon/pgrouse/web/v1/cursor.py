"""Cursors of paged lists: where the next page begins, as opaque text."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

from pgrouse.web.http.problem import Problem


def encode(kind: str, position: Any) -> str | None:
    """Encode a position as a cursor; None is the end of the list."""
    if position is None:
        return None
    text = json.dumps([kind, position], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def encode_end(kind: str, positions: Sequence[Any], limit: int) -> str | None:
    """Encode where the page after one with these positions begins; None: it was not full, so it was the last."""
    return encode(kind, positions[-1]) if len(positions) == limit else None


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
        raise _invalid()
    return position


def decode_id(kind: str, cursor: str | None) -> int | None:
    """Decode a cursor whose position is an id."""
    position = decode(kind, cursor)
    if position is not None and (
        not isinstance(position, int) or isinstance(position, bool) or not 0 <= position < 2**63
    ):
        raise _invalid()
    return position


def decode_name(kind: str, cursor: str | None) -> str:
    """Decode a cursor whose position is a name; empty: the beginning."""
    position = decode(kind, cursor) or ""
    if not isinstance(position, str) or not position.isprintable():
        raise _invalid()
    return position


def _invalid() -> Problem:
    return Problem(422, "cursor: not a cursor of this list; use `next` of the previous page", "invalid_cursor")
