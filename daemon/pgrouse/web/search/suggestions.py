"""What the filters of a list suggest: values and payload paths of the messages that are listed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pgrouse.client.call import run_async
from pgrouse.client.queries import message
from pgrouse.values.error_line import last_line
from pgrouse.web.access.database_pool import Connection, Row
from pgrouse.web.http.problem import Problem
from pgrouse.web.search.search import header_filter, places_of

MAX_SUGGESTIONS = 30
# Deeper paths are typed.
MAX_DEPTH = 3


@dataclass(frozen=True)
class Suggestions:
    """What the fields of the filters suggest.

    Attributes:
        channels, keys, errors: of the listed messages.
        payloads: the beginnings of filters by their payloads, as `customer.id = `.
        headers: filters by their headers, as `tenant = acme`.
    """

    channels: list[str]
    keys: list[str]
    errors: list[str]
    payloads: list[str]
    headers: list[str]


async def read_headers(conn: Connection, rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Return names and JSON texts of the headers of the listed messages."""
    return await run_async(conn, message.headers(places_of(rows)))


def suggest(rows: Sequence[Row], headers: Sequence[tuple[str, str]]) -> Suggestions:
    """Return what the listed messages suggest. A payload whose preview is cut suggests nothing."""
    return Suggestions(
        channels=_distinct(row["channel"] for row in rows),
        keys=_distinct(row["key"] for row in rows),
        errors=_distinct(last_line(row["error"] or "", 100) for row in rows),
        payloads=_distinct(f"{path} = " for row in rows for path in _paths(_decoded(row["preview"] or ""))),
        headers=_distinct(_header(name, value) for name, value in headers),
    )


def _distinct(values: Iterable[str | None]) -> list[str]:
    return sorted({value for value in values if value})[:MAX_SUGGESTIONS]


def _header(name: str, value: str) -> str | None:
    """Return the filter for a header, its value a JSON text; without quotes if it needs none.

    None for one that no filter finds.
    """
    wanted = {name: json.loads(value)}
    plain = wanted[name] if isinstance(wanted[name], str) else value
    for text in (f"{name} = {plain}", f"{name} = {value}"):
        if text.isprintable() and _finds(text, wanted):
            return text
    return None


def _finds(text: str, wanted: dict[str, Any]) -> bool:
    try:
        return bool(json.loads(header_filter(text) or "null") == wanted)
    except Problem:
        return False


def _decoded(preview: str) -> Any:
    try:
        return json.loads(preview)
    except (ValueError, RecursionError):
        return None


def _paths(value: Any, prefix: str = "", depth: int = 1) -> Iterator[str]:
    """Yield the paths of an object that lead to a value which can be compared."""
    for name, below in value.items() if isinstance(value, dict) else ():
        # A name with a dot or a bracket would be read as several.
        if not name.replace("_", "").replace("-", "").isalnum():
            continue
        path = f"{prefix}{name}"
        if isinstance(below, dict) and depth < MAX_DEPTH:
            yield from _paths(below, f"{path}.", depth + 1)
        elif not isinstance(below, dict | list):
            yield path
