"""Answers as JSON. What the database holds as JSON passes through as text: nothing is lost, and nothing there can break an answer."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from starlette.responses import Response

from pgrouse.crypto import envelope
from pgrouse.jsonb import Raw


class Answer(Response):
    """An answer of `/v1`."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return the content as JSON."""
        return dumps(content).encode()


def raw(text: str | None) -> Raw | None:
    """Return JSON text of the database as it shall stand in an answer."""
    return None if text is None else Raw(text)


def with_raw(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return a row whose columns of these names are JSON text."""
    return {**row, **{name: raw(row[name]) for name in names}}


def encrypted(body: bytes | memoryview | None) -> dict[str, Any] | None:
    """Return which key an encrypted body needs, and how many bytes it has; None if it is none."""
    head = None if body is None else envelope.read(bytes(body[: envelope.MOST_HEAD]))
    return None if head is None or body is None else {"key": head.key, "bytes": len(body)}


def dumps(value: Any) -> str:
    """Write a value as JSON: times in ISO 8601, durations in seconds, bytes in Base64."""
    if value is None or isinstance(value, str | int | float):
        return _text(value)
    if isinstance(value, Raw):
        return value.text
    if isinstance(value, Mapping):
        return "{" + ",".join([f"{_text(str(key))}:{dumps(inner)}" for key, inner in value.items()]) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(dumps, value)) + "]"
    return _text(_plain(value))


def _plain(value: Any) -> str | float:
    match value:
        case datetime():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case bytes() | memoryview():
            return base64.b64encode(value).decode()
        case _:
            return str(value)


_text = json.JSONEncoder(allow_nan=False).encode
