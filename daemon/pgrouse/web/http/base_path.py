"""Where the application is mounted in another one: below `/queue`, say.

Routes, templates and redirects name paths as if it was at `/`. The base is put before them at the end: in finished
pages, and in the headers of responses. In a finished page each quote of a value is escaped, so that only what a
template wrote looks like an attribute.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from typing import Any
from urllib.parse import quote

PATH_ATTRIBUTE = re.compile(r'(\s(?:href|src|action|formaction|data-live|hx-get|hx-post)=")/(?!/)')
PATH_HEADERS = (b"location", b"hx-redirect")


def base_path(scope: Mapping[str, Any]) -> str:
    """Return the base, as it stands in a URL; "" if there is none."""
    return quote(scope.get("root_path", "").rstrip("/"))


def route_path(scope: Mapping[str, Any]) -> str:
    """Return the path of a request below the base."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "").rstrip("/")
    return path[len(root) :] if root and path.startswith(f"{root}/") else path


def with_base_in_page(text: str, base: str) -> str:
    """Return a page, or a part of one, with the base before each path."""
    return PATH_ATTRIBUTE.sub(lambda found: f"{found[1]}{escape(base)}/", text) if base else text


def with_base_in_headers(headers: list[tuple[bytes, bytes]], base: str) -> list[tuple[bytes, bytes]]:
    """Return the headers with the base before each path."""
    if not base:
        return headers
    return [
        (name, base.encode() + value if name in PATH_HEADERS and _is_path(value) else value) for name, value in headers
    ]


def _is_path(value: bytes) -> bool:
    return value.startswith(b"/") and not value.startswith(b"//")
