"""The progress that a handler reports: checks it and converts it to JSON."""

from __future__ import annotations

import json
from typing import Any

UNIT_CHARS = 50


def progress_json(done: Any, total: Any, unit: Any) -> str:
    """Return a progress as JSON.

    Raises:
        ValueError: a number is missing, negative or not finite; the unit is not a short text.
    """
    progress = {"done": _number("done", done)}
    if total is not None:
        progress["total"] = _number("total", total)
    if unit is not None:
        progress["unit"] = _unit(unit)
    return json.dumps(progress, ensure_ascii=False)


def _number(name: str, value: Any) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= 1e18:  # noqa: PLR2004 - NaN fails too
        raise ValueError(f"ctx.progress({name}={value!r:.50}): use a number from 0 to 1e18")
    return value


def _unit(value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable() or not 1 <= len(value) <= UNIT_CHARS:
        raise ValueError(f"ctx.progress(unit={value!r:.60}): use a word like 'rows', at most {UNIT_CHARS} characters")
    return value
