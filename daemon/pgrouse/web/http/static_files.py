"""The files of `static/`.

They have a name with the digest of their content, so that browsers may keep them without asking again.
"""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pgrouse.web.http.problem import Problem

STATIC_DIR = Path(__file__).parents[1] / "static"
IMMUTABLE = "public, max-age=31536000, immutable"
REVALIDATE = "no-cache"
# Below this a compressed file is no smaller in packets.
MIN_GZIP_BYTES = 1000

mimetypes.add_type("text/javascript", ".js")
mimetypes.add_type("image/svg+xml", ".svg")
mimetypes.add_type("font/woff2", ".woff2")


@dataclass(frozen=True)
class StaticFile:
    """One file, as it is sent."""

    content: bytes
    gzipped: bytes | None
    digest: str
    media_type: str


def url(name: str) -> str:
    """Return where a file of `static/` is: `url("app.css")`; for templates, there called `static`."""
    return f"/static/{name}?v={read_file(name).digest}"


def read_file(name: str) -> StaticFile:
    """Return a file of `static/`, as it is now.

    Raises:
        FileNotFoundError: there is none of this name.
    """
    path = (STATIC_DIR / name).resolve()
    if not path.is_relative_to(STATIC_DIR.resolve()) or not path.is_file():
        raise FileNotFoundError(name)
    return _load(path, path.stat().st_mtime_ns)


@lru_cache(maxsize=200)
def _load(path: Path, _changed: int) -> StaticFile:
    content = path.read_bytes()
    gzipped = gzip.compress(content, 9, mtime=0) if len(content) > MIN_GZIP_BYTES else None
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    smaller = gzipped if gzipped and len(gzipped) < len(content) else None
    return StaticFile(content, smaller, hashlib.sha256(content).hexdigest()[:16], kind)


def _serve(request: Request) -> Response:
    try:
        found = read_file(request.path_params["name"])
    except (OSError, ValueError):
        raise Problem(404, "there is no such file", "not_found") from None
    etag = f'"{found.digest}"'
    keep = IMMUTABLE if request.query_params.get("v") == found.digest else REVALIDATE
    headers = {"ETag": etag, "Cache-Control": keep, "Vary": "Accept-Encoding"}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    if found.gzipped and "gzip" in request.headers.get("accept-encoding", ""):
        return Response(found.gzipped, headers=headers | {"Content-Encoding": "gzip"}, media_type=found.media_type)
    return Response(found.content, headers=headers, media_type=found.media_type)


# Open to everybody: the page to log in needs its style.
ROUTE = Route("/static/{name:path}", _serve, methods=["GET"], include_in_schema=False)
