"""The detail of an audited action as people read it."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from pgrouse.config import duration
from pgrouse.format import harmless
from pgrouse.web.page.formatting import NONE

MAX_VALUE_CHARS = 400  # characters of one value
# As PostgreSQL writes an interval: `3 days 01:00:00`.
INTERVAL = re.compile(r"(?:(\d{1,9}) days? ?)?(?:(\d{1,9}):(\d\d):(\d\d(?:\.\d{1,6})?))?", re.ASCII)
# What a schedule has unless it says otherwise, and what stands in other columns.
DEFAULTS = {
    "add_schedule": {
        "jitter": "00:00:00",
        "missed": "once",
        "payload": {},
        "priority": 5,
        "time_zone": "UTC",
        "missed_limit": 100,
    }
}
OTHER_COLUMNS = {"add_schedule": ("name", "topic")}

Line = tuple[str, str, str | None]


def detail_lines(action: str, detail: dict[str, Any]) -> list[Line]:
    """Return name, value, and of a change the value it had before; not what is in other columns, nor defaults."""
    changes = detail.get("changes")
    values = {name: (value, None) for name, value in detail.items() if name != "changes" or not isinstance(value, dict)}
    if isinstance(changes, dict):
        values |= {name: (each.get("new"), each.get("old")) for name, each in changes.items() if isinstance(each, dict)}
    return [
        (name, _text(new), None if old is None else _text(old))
        for name, (new, old) in values.items()
        if not _goes_without_saying(action, name, new)
    ]


def _goes_without_saying(action: str, name: str, value: Any) -> bool:
    defaults = DEFAULTS.get(action, {})
    return name in OTHER_COLUMNS.get(action, ()) or (name in defaults and value == defaults[name])


def _text(value: Any) -> str:
    text = _plain(value)
    return harmless(text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]}…")


def _plain(value: Any) -> str:
    if value is None:
        return NONE
    if isinstance(value, str):
        return _interval(value) or _moment(value) or value
    if isinstance(value, list) and value and all(isinstance(each, int) for each in value):
        return ", ".join(map(str, value))
    if isinstance(value, dict) and value and all(type(each) is int for each in value.values()):
        # Counts: those of 0 say nothing.
        return ", ".join(f"{name} {count}" for name, count in value.items() if count) or "nothing"
    return json.dumps(value, ensure_ascii=False)


def _interval(text: str) -> str | None:
    """Return an interval as it is typed, `1h30m`; None: it is none."""
    found = INTERVAL.fullmatch(text)
    if not text or found is None:
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    try:
        return duration.show(timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds))
    except OverflowError:
        return None


def _moment(text: str) -> str | None:
    """Return a time in UTC, to the second; None: it is none."""
    if "T" not in text:
        return None
    try:
        at = datetime.fromisoformat(text)
        return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if at.tzinfo else None
    except (ValueError, OverflowError):
        return None
