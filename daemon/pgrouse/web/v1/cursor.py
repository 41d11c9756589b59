"""Cursors: where the next page begins, as text that means nothing to whoever holds it."""

from __future__ import annotations

import base64
import json
from typing import Any

from pgrouse.web.problem import Problem


def write(kind: str, place: Any) -> str | None:
    """Return the cursor of a place; None stands for the end."""
    if place is None:
        return None
    text = json.dumps([kind, place], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def read(kind: str, cursor: str | None) -> Any:
    """Return the place that a cursor of this kind stands for; None: the beginning.

    Raises:
        Problem: 422, it is none.
    """
    if not cursor:
        return None
    try:
        found, place = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, TypeError, RecursionError):
        found, place = None, None
    if found != kind:
        raise Problem(422, "cursor: not one of this list; use `next` of the page before", "invalid_cursor")
    return place


def read_id(kind: str, cursor: str | None) -> int | None:
    """Return the id that a cursor stands for."""
    place = read(kind, cursor)
    if place is not None and (not isinstance(place, int) or isinstance(place, bool) or not 0 <= place < 2**63):
        raise Problem(422, "cursor: not one of this list; use `next` of the page before", "invalid_cursor")
    return place
