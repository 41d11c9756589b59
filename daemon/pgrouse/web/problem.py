"""Errors as RFC 9457 has them: `application/problem+json`, one shape for all, made in one place.

`Problem` is raised wherever something is refused. What PostgreSQL refuses is told by its SQLSTATE; see `of_database`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import psycopg
import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, Response

from pgrouse import errors, events
from pgrouse.config.dsn import redact

log = structlog.get_logger()

NOT_ALLOWED = 405
MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 2

TITLES = {
    400: "Bad request",
    401: "Not authenticated",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    409: "Conflict",
    413: "Too large",
    415: "Unsupported media type",
    421: "Misdirected request",
    422: "Not acceptable as it is",
    429: "Too many requests",
    431: "Headers too large",
    500: "Internal error",
    503: "Unavailable",
    504: "Timed out",
}


class Problem(Exception):
    """A request that is refused.

    Args:
        status: of the answer.
        detail: what is wrong, where, and the mend.
        code: a short word that programs can tell it by.
        headers: more headers of the answer.
        **more: further members of the problem.
    """

    def __init__(
        self, status: int, detail: str, code: str, headers: Mapping[str, str] | None = None, **more: Any
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.code, self.headers, self.more = status, detail, code, headers or {}, more

    def body(self) -> dict[str, Any]:
        """Return the members of the problem."""
        title = TITLES.get(self.status, "Error")
        return {"title": title, "status": self.status, "code": self.code, "detail": self.detail, **self.more}

    def response(self) -> Response:
        """Return the answer."""
        content = json.dumps(self.body(), ensure_ascii=False, default=str).encode("utf-8", "replace")
        return Response(content, self.status, dict(self.headers), media_type=MEDIA_TYPE)


def unavailable(detail: str = "the database does not answer: try again") -> Problem:
    """Return the problem of a database that is away."""
    return Problem(503, detail, "unavailable", {"Retry-After": str(RETRY_AFTER_S)})


# What an SQLSTATE means to who asked: status and code.
STATES = {
    "PGR01": (429, "topic_full"),
    "PGR02": (429, "publish_rate_exceeded"),
    "PGR03": (422, "topic_not_registered"),
    "PGR04": (413, "payload_too_large"),
    "PGR05": (422, "topic_reserved"),
    "PGR08": (422, "unknown_predecessor"),
    "23505": (409, "already_there"),
    "23503": (409, "still_referenced"),
    "25006": (409, "read_only"),
    # 503, not 409: whoever settles and gets 409 drops his work.
    "40001": (503, "concurrent_change"),
    "40P01": (503, "concurrent_change"),
    "42501": (403, "database_forbids"),
    "54000": (413, "too_large"),
    "54001": (422, "too_deep"),
    "55P03": (503, "locked"),
    "57014": (503, "timed_out"),
    "P0002": (404, "not_found"),
}
# By class, where the state itself is not named.
CLASSES = {"22": (422, "invalid_value"), "23": (422, "invalid_value"), "54": (413, "too_large")}
# What refuses a commit while the queue of notifications is full; its SQLSTATE is that of what is too large.
FULL_QUEUE = "PreCommit_Notify"
# The schema is missing, or another version's.
OTHER_SCHEMA = ("3F000", "42P01", "42703", "42883")
# The database is away, starts, stops, or has no place left.
AWAY = ("08", "53", "57P", "58", "F0", "XX")
RETRY = {429: 1, 503: RETRY_AFTER_S}
RETRY_FULL_S = 5


def of_database(error: psycopg.Error) -> Problem:
    """Return the problem that an error of PostgreSQL is to who asked. Nothing in it repeats a row."""
    state = error.sqlstate or ""
    if isinstance(error, psycopg.DataError) and not state:  # the driver's own: it was never sent
        return Problem(422, "a text has a NUL character, which PostgreSQL cannot store: take it out", "invalid_value")
    if isinstance(error, PoolTimeout | PoolClosed | TooManyRequests) or not state or state.startswith(AWAY):
        return unavailable()
    if state in OTHER_SCHEMA:
        log.error(events.WEB_FAILED, sqlstate=state, reason=redact(str(error.diag.message_primary)))
        return unavailable("the database has not the schema of this version: run `pgrouse migrate`")
    status, code = STATES.get(state) or CLASSES.get(state[:2], (500, "internal"))
    if error.diag.source_function == FULL_QUEUE:
        status, code = 503, "notify_queue_full"
    if status == 500:  # noqa: PLR2004
        log.error(events.WEB_FAILED, sqlstate=state, reason=redact(str(error.diag.message_primary)))
        return Problem(500, "something went wrong on this side: the log has it", "internal")
    said = " — ".join(filter(None, [error.diag.message_primary, error.diag.message_hint]))
    wait = RETRY_FULL_S if code == "topic_full" else RETRY.get(status)
    headers = {"Retry-After": str(wait)} if wait else {}
    return Problem(status, redact(said or code), code, headers, sqlstate=state)


# The first that fits.
REFUSALS: tuple[tuple[type[errors.PgrouseError], int, str], ...] = (
    (errors.InvalidPayload, 422, "invalid_payload"),
    (errors.PublishRefused, 422, "invalid_message"),
    (errors.LockLost, 409, "lock_lost"),
    (errors.UnknownMessage, 404, "not_found"),
    (errors.PgrouseError, 422, "refused"),
)


def of_refusal(error: errors.PgrouseError) -> Problem:
    """Return the problem of an error of this package."""
    if isinstance(error, errors.NotAdmitted) and isinstance(error.__cause__, psycopg.Error):
        problem = of_database(error.__cause__)
        return Problem(problem.status, str(error), problem.code, problem.headers, **problem.more)
    if isinstance(error, errors.DatabaseUnreachable | errors.SchemaMismatch):
        return unavailable(str(error))
    status, code = next((status, code) for kind, status, code in REFUSALS if isinstance(error, kind))
    problem = Problem(status, str(error), code)
    if isinstance(error, errors.InvalidPayload):
        problem.more["problems"] = error.problems
    return problem


def of_validation(error: RequestValidationError) -> Problem:
    """Return the problem of a request that does not fit its description: each fault with its place, never the value."""
    faults = [
        {"where": ".".join(map(str, each["loc"])), "what": str(each["msg"]).removeprefix("Value error, ")}
        for each in error.errors()[:100]
    ]
    first = faults[0] if faults else {"where": "request", "what": "invalid"}
    return Problem(422, f"{first['where']}: {first['what']}", "invalid_request", errors=faults)


def of_http(error: HTTPException | ClientDisconnect) -> Problem:
    """Return the problem of an error that the framework raised."""
    if isinstance(error, ClientDisconnect):
        return Problem(400, "the request ended before it was whole", "bad_request")
    code = TITLES.get(error.status_code, "error").lower().replace(" ", "_")
    return Problem(error.status_code, str(error.detail), code, error.headers)


def install(app: FastAPI) -> None:
    """Let an app answer every error as a problem; browsers that ask for a page get one."""
    app.add_exception_handler(Problem, _answer)
    app.add_exception_handler(psycopg.Error, _answer)
    app.add_exception_handler(errors.PgrouseError, _answer)
    app.add_exception_handler(RequestValidationError, _answer)
    app.add_exception_handler(HTTPException, _answer)
    # Else it would be taken for a fault of ours, and told as one.
    app.add_exception_handler(ClientDisconnect, _answer)
    app.add_exception_handler(Exception, _answer)


def problem_of(error: Exception) -> Problem:
    """Return the problem that an exception is to who asked."""
    match error:
        case Problem():
            return error
        case psycopg.Error():
            return of_database(error)
        case errors.PgrouseError():
            return of_refusal(error)
        case RequestValidationError():
            return of_validation(error)
        case HTTPException() | ClientDisconnect():
            return of_http(error)
        case _:
            log.error(events.WEB_FAILED, reason=type(error).__name__, exc_info=error)
            return Problem(500, "something went wrong on this side: the log has it", "internal")


async def _answer(request: Request, error: Exception) -> Response:
    problem = problem_of(error)
    if problem.status == NOT_ALLOWED:
        problem.headers = {**problem.headers, "Allow": _allowed(request)}
    if wants_page(request):
        return page(request, problem)
    return problem.response()


def _allowed(request: Request) -> str:
    """Return the methods of all routes of a path: the framework tells those of the first only."""
    found: set[str] = set()
    for route in request.app.state.routes:
        if route.path_regex.match(request.scope["path"]):
            found |= route.methods or set()
    return ", ".join(sorted(found))


def wants_page(request: Request) -> bool:
    """Say whether a person with a browser asks."""
    return not request.scope["path"].startswith("/v1") and "text/html" in request.headers.get("accept", "")


def page(request: Request, problem: Problem) -> Response:
    """Return the problem as a page; who is not logged in is led to the door."""
    from pgrouse.web.page import render, to_login  # noqa: PLC0415 - pages need this module

    is_part = bool(request.headers.get("hx-request"))
    if problem.status == 401 and (request.method == "GET" or is_part):  # noqa: PLR2004
        return to_login(request)
    if is_part:  # an action was refused: the page stays, and says why
        shown = render(request, "acted.html", parts={}, text=problem.detail, kind="bad")
        return HTMLResponse(bytes(shown.body), problem.status, dict(problem.headers))
    shown = render(request, "problem.html", problem=problem.body(), title=problem.body()["title"])
    return HTMLResponse(bytes(shown.body), problem.status, dict(problem.headers))
