"""How problems are answered: as JSON, and to browsers as a page."""

from __future__ import annotations

import psycopg
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, Response

from pgrouse.errors import PgrouseError
from pgrouse.web.access.security import identify
from pgrouse.web.http.base_path import route_path
from pgrouse.web.http.problem import Problem, to_problem
from pgrouse.web.page.page import redirect_to_login, render

METHOD_NOT_ALLOWED = 405
TOO_MANY = 429
SERVER_ERROR = 500
UNAVAILABLE = "unavailable"


def install(app: FastAPI) -> None:
    """Answer every error as a problem; browsers get a page."""
    app.add_exception_handler(Problem, _respond)
    app.add_exception_handler(psycopg.Error, _respond)
    app.add_exception_handler(PgrouseError, _respond)
    app.add_exception_handler(RequestValidationError, _respond)
    app.add_exception_handler(HTTPException, _respond)
    # Otherwise it would be reported as an internal error.
    app.add_exception_handler(ClientDisconnect, _respond)
    app.add_exception_handler(Exception, _respond)


async def _respond(request: Request, error: Exception) -> Response:
    problem = to_problem(error)
    if problem.status == METHOD_NOT_ALLOWED:
        problem.headers = {**problem.headers, "Allow": _allowed(request)}
    if wants_page(request) and problem.code != UNAVAILABLE:  # who it is would be asked of the same database
        await identify(request)
    return answer(request, problem)


def answer(request: Request, problem: Problem) -> Response:
    """Return the answer to a request: for a browser a page."""
    return problem_page(request, problem) if wants_page(request) else problem.response()


def _allowed(request: Request) -> str:
    """Return the methods of all routes of a path: the framework returns those of the first route only."""
    found: set[str] = set()
    for route in request.app.state.routes:
        if route.path_regex.match(route_path(request.scope)):
            found |= route.methods or set()
    if "GET" in found:
        found.add("HEAD")
    return ", ".join(sorted(found))


def wants_page(request: Request) -> bool:
    """Return whether a browser requests a page."""
    return not route_path(request.scope).startswith("/v1") and "text/html" in request.headers.get("accept", "")


def problem_page(request: Request, problem: Problem) -> Response:
    """Return the problem as a page; redirect to the login if the caller is not logged in."""
    is_part = bool(request.headers.get("hx-request"))
    if problem.status == 401 and (request.method == "GET" or is_part):  # noqa: PLR2004
        return redirect_to_login(request)
    if is_part:  # an action was rejected: the page stays, and shows why
        response = render(request, "frame/action_result.html", parts={}, text=problem.detail, kind="bad")
        return HTMLResponse(bytes(response.body), problem.status, dict(problem.headers))
    can_retry = request.method == "GET" and (problem.status >= SERVER_ERROR or problem.status == TOO_MANY)
    response = render(request, "frame/problem.html", problem=problem.body(), can_retry=can_retry)
    return HTMLResponse(bytes(response.body), problem.status, dict(problem.headers))
