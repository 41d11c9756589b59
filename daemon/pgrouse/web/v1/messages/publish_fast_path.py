"""The short way to the routes that publish: what comes most often does not pay for the framework's table of routes.

The routes are the same functions; only how their arguments are found differs. What needs more than that goes the long
way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import FastAPI, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from pgrouse.web.access.caller import Caller, Role
from pgrouse.web.access.security import RequireRole
from pgrouse.web.http.base_path import route_path
from pgrouse.web.http.problem import to_problem
from pgrouse.web.v1.messages import publish

ROUTES: dict[str, Callable[[Request, Caller], Awaitable[Response]]] = {
    "/v1/messages": publish.publish_message,
    "/v1/messages/batch": publish.publish_messages,
}


def with_publish_fast_path(app: FastAPI) -> ASGIApp:
    """Return the app with the short way before it."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        route = ROUTES.get(route_path(scope)) if scope.get("method") == "POST" else None
        if route is None or any(name == b"idempotency-key" for name, _ in scope["headers"]):
            await app(scope, receive, send)
            return
        scope["app"] = app
        request = Request(scope, receive)
        try:
            response = await route(request, await RequireRole(Role.PUBLISHER)(request))
        except Exception as error:  # noqa: BLE001 - as the framework does; it is logged
            response = to_problem(error).response()
        await response(scope, receive, send)

    return answer
