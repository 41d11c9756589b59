"""JSON responses of `/v1`.

JSON from the database is passed through as text, so that no digit is lost and nothing in it can break a response.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from starlette.responses import Response

from pgrouse.crypto import envelope
from pgrouse.values.jsonb import Raw


class ApiResponse(Response):
    """A JSON response of `/v1`."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Encode the content as JSON."""
        return dumps(content).encode()


def raw(text: str | None) -> Raw | None:
    """Mark JSON text from the database, so that it is written as it is."""
    return None if text is None else Raw(text)


def with_raw(row: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return the row with the named columns marked as JSON text."""
    return {**row, **{name: raw(row[name]) for name in names}}


def encrypted(body: bytes | memoryview | None) -> dict[str, Any] | None:
    """Return the key name and the size of an encrypted body; None if the body is not encrypted."""
    head = None if body is None else envelope.read_header(bytes(body[: envelope.MAX_HEADER_BYTES]))
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
