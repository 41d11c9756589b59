"""Pages are compressed: a tenth of them crosses the network.

Answers of the API are not, since workers would pay for it with each claim.

A page contains the secret against forged requests, whose length in the compressed text an attacker could measure by
pages that repeat a guess of it. No other site can make a browser fetch one: its cookie is SameSite=Strict.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

MIN_BYTES = 1000
# Level 9 takes twice the time of it, and saves 2 %.
LEVEL = 5


def with_page_compression(app: ASGIApp) -> ASGIApp:
    """Return the app with compressed pages. Streams are sent as they are."""
    compressed = GZipMiddleware(app, minimum_size=MIN_BYTES, compresslevel=LEVEL)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        is_page = scope["type"] == "http" and _wants_page(Headers(scope=scope))
        await (compressed if is_page else app)(scope, receive, send)

    return answer


def _wants_page(headers: Headers) -> bool:
    return "text/html" in headers.get("accept", "") or "hx-request" in headers
