"""Functions for `web.redact`, and the word that they hide."""

from __future__ import annotations

import json
from typing import Any

from pgrouse.web import Content

SECRET = "s3cret"


def replace(content: Content) -> Any:
    if isinstance(content.value, bytes):
        return content.value.replace(SECRET.encode(), b"...")
    return json.loads(json.dumps(content.value).replace(SECRET, "..."))


def hide_from_viewers(content: Content) -> Any:
    return content.value if "operator" in content.roles else replace(content)


def fail(content: Content) -> Any:
    raise ValueError(content.value)


def return_no_json(content: Content) -> Any:
    return object()


def return_nothing(content: Content) -> None:
    return None
