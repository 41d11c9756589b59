"""What the filters of a list suggest: values and payload paths of the messages that are listed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pgrouse.error_line import last_line
from pgrouse.web.database_pool import Row

MAX_SUGGESTIONS = 30
# Deeper paths are typed.
MAX_DEPTH = 3


@dataclass(frozen=True)
class Suggestions:
    """What the fields of the filters suggest.

    Attributes:
        channels, keys, errors: of the listed messages.
        payloads: the beginnings of filters by their payloads, as `customer.id = `.
    """

    channels: list[str]
    keys: list[str]
    errors: list[str]
    payloads: list[str]


def suggest(rows: Sequence[Row]) -> Suggestions:
    """Return what the listed messages suggest. A payload whose preview is cut suggests nothing."""
    return Suggestions(
        channels=_distinct(row["channel"] for row in rows),
        keys=_distinct(row["key"] for row in rows),
        errors=_distinct(last_line(row["error"] or "", 100) for row in rows),
        payloads=_distinct(f"{path} = " for row in rows for path in _paths(_decoded(row["preview"] or ""))),
    )


def _distinct(values: Iterable[str | None]) -> list[str]:
    return sorted({value for value in values if value})[:MAX_SUGGESTIONS]


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
