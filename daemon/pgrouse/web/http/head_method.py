"""HEAD: what GET answers, without its body.

For monitors and link checkers; the framework knows it for its own routes only.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send


def with_head(app: ASGIApp) -> ASGIApp:
    """Return the app with HEAD on each path that has GET."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "HEAD":
            await _answer_head(app, scope, receive, send)
        else:
            await app(scope, receive, send)

    return answer


async def _answer_head(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer as GET does, up to the headers. A stream sees its client gone then, and ends."""
    is_complete = False

    async def send_headers(message: Message) -> None:
        nonlocal is_complete
        if message["type"] == "http.response.start":
            await send(message)
        elif not is_complete:
            is_complete = True
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def receive_until_complete() -> Message:
        return {"type": "http.disconnect"} if is_complete else await receive()

    await app({**scope, "method": "GET"}, receive_until_complete, send_headers)
