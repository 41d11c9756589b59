"""Errors as RFC 9457 problems (`application/problem+json`).

Code raises `Problem` to reject a request. Errors of PostgreSQL are translated by SQLSTATE; see `database_problem`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import psycopg
from fastapi.exceptions import RequestValidationError
from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from pgrouse import errors
from pgrouse.config.dsn import redact
from pgrouse.config.validation_text import describe
from pgrouse.logging import events
from pgrouse.logging.event_logger import log

MEDIA_TYPE = "application/problem+json"
# What the framework says in other words.
DETAILS = {404: "there is nothing at this address", 405: "this address takes other methods: see the header Allow"}
RETRY_AFTER_S = 2
DATABASE_AWAY = "the database does not answer: try again"

TITLES = {
    400: "Bad request",
    401: "Not authenticated",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    408: "Request timeout",
    409: "Conflict",
    413: "Too large",
    415: "Unsupported media type",
    421: "Misdirected request",
    422: "Invalid request",
    429: "Too many requests",
    431: "Headers too large",
    500: "Internal error",
    503: "Unavailable",
    504: "Timed out",
}


class Problem(Exception):
    """A rejected request.

    Args:
        status: of the answer.
        detail: what is wrong, where, and how to fix it.
        code: a short machine-readable code.
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


def unavailable(detail: str = DATABASE_AWAY) -> Problem:
    """Return the problem of a database that cannot be reached."""
    return Problem(503, detail, "unavailable", {"Retry-After": str(RETRY_AFTER_S)})


# Status and code of each SQLSTATE.
SQLSTATES = {
    "PGR01": (429, "topic_full"),
    "PGR02": (429, "publish_rate_exceeded"),
    "PGR03": (422, "topic_closed"),
    "PGR04": (413, "payload_too_large"),
    "PGR05": (422, "topic_reserved"),
    "PGR08": (422, "unknown_predecessor"),
    "PGR09": (409, "batch_closed"),
    "23505": (409, "already_there"),
    "23503": (409, "still_referenced"),
    # 503, not 409: a worker that gets 409 for a settle drops its work.
    "25006": (503, "read_only"),
    "40001": (503, "concurrent_change"),
    "40P01": (503, "concurrent_change"),
    "42501": (403, "database_forbids"),
    "54000": (413, "too_large"),
    "54001": (422, "too_deep"),
    "55P03": (503, "locked"),
    "57014": (503, "timed_out"),
    "P0002": (404, "not_found"),
}
# By class, if the SQLSTATE itself is not listed.
SQLSTATE_CLASSES = {"22": (422, "invalid_value"), "23": (422, "invalid_value"), "54": (413, "too_large")}
# The server function that fails while the NOTIFY queue is full; its SQLSTATE is the one of "too large".
NOTIFY_QUEUE_FULL_IN = "PreCommit_Notify"
# The schema is missing, or has another version.
SCHEMA_MISMATCH = ("3F000", "42P01", "42703", "42883")
# The database is down, starting, stopping, or full.
DISCONNECTS = ("08", "57P")
OUTAGE_SQLSTATES = ("08", "53", "57P", "58", "F0", "XX")
RETRY_AFTER_BY_STATUS = {429: 1, 503: RETRY_AFTER_S}
TOPIC_FULL_RETRY_S = 5


def is_disconnect(error: psycopg.Error) -> bool:
    """Return whether an error is of the connection, or of a server that starts or stops.

    Errors of a statement, or of a server that is full, are not.
    """
    return not isinstance(error, psycopg.DataError) and (not error.sqlstate or error.sqlstate.startswith(DISCONNECTS))


def database_problem(error: psycopg.Error) -> Problem:
    """Return the problem for an error of PostgreSQL, without any data of a row."""
    state = error.sqlstate or ""
    if isinstance(error, psycopg.DataError) and not state:  # raised by the driver: nothing was sent
        return Problem(422, "a text has a NUL character, which PostgreSQL cannot store: take it out", "invalid_value")
    if isinstance(error, PoolTimeout | PoolClosed | TooManyRequests) or not state or state.startswith(OUTAGE_SQLSTATES):
        return unavailable()
    if state in SCHEMA_MISMATCH:
        log.error(events.WEB_FAILED, sqlstate=state, reason=redact(str(error.diag.message_primary)))
        return unavailable("the database does not have the schema of this version: run `pgrouse migrate`")
    status, code = SQLSTATES.get(state) or SQLSTATE_CLASSES.get(state[:2], (500, "internal"))
    if error.diag.source_function == NOTIFY_QUEUE_FULL_IN:
        status, code = 503, "notify_queue_full"
    if status == 500:  # noqa: PLR2004
        log.error(events.WEB_FAILED, sqlstate=state, reason=redact(str(error.diag.message_primary)))
        return Problem(500, "internal error: see the log of the server", "internal")
    text = " — ".join(filter(None, [error.diag.message_primary, error.diag.message_hint]))
    wait = TOPIC_FULL_RETRY_S if code == "topic_full" else RETRY_AFTER_BY_STATUS.get(status)
    headers = {"Retry-After": str(wait)} if wait else {}
    return Problem(status, redact(text or code), code, headers, sqlstate=state)


# The first match counts.
ERRORS: tuple[tuple[type[errors.PgrouseError], int, str], ...] = (
    (errors.InvalidPayload, 422, "invalid_payload"),
    (errors.InvalidMessage, 422, "invalid_message"),
    (errors.LockLost, 409, "lock_lost"),
    (errors.MessageNotFound, 404, "not_found"),
    (errors.PgrouseError, 422, "refused"),
)


def error_problem(error: errors.PgrouseError) -> Problem:
    """Return the problem for an error of this package."""
    if isinstance(error, errors.PublishRejected) and isinstance(error.__cause__, psycopg.Error):
        problem = database_problem(error.__cause__)
        return Problem(problem.status, str(error), problem.code, problem.headers, **problem.more)
    if isinstance(error, errors.DatabaseUnreachable | errors.SchemaMismatch):
        return unavailable(str(error))
    status, code = next((status, code) for kind, status, code in ERRORS if isinstance(error, kind))
    problem = Problem(status, str(error), code)
    if isinstance(error, errors.InvalidPayload):
        problem.more["problems"] = error.problems
    return problem


def validation_problem(error: RequestValidationError) -> Problem:
    """Return the problem of an invalid request: each error with its location, never the value."""
    found = [
        {
            "location": ".".join(map(str, each["loc"])),
            "message": describe(each, each.get("known", ())) if "type" in each else each["msg"],
        }
        for each in error.errors()[:100]
    ]
    first = found[0] if found else {"location": "request", "message": "invalid"}
    return Problem(422, f"{first['location']}: {first['message']}", "invalid_request", errors=found)


def http_problem(error: HTTPException | ClientDisconnect) -> Problem:
    """Return the problem for an error of the framework."""
    if isinstance(error, ClientDisconnect):
        return Problem(400, "the request ended before it was complete", "bad_request")
    code = TITLES.get(error.status_code, "error").lower().replace(" ", "_")
    detail = DETAILS.get(error.status_code, str(error.detail))
    return Problem(error.status_code, detail, code, error.headers)


def to_problem(error: Exception) -> Problem:
    """Return the problem for an exception."""
    match error:
        case Problem():
            return error
        case psycopg.Error():
            return database_problem(error)
        case errors.PgrouseError():
            return error_problem(error)
        case RequestValidationError():
            return validation_problem(error)
        case HTTPException() | ClientDisconnect():
            return http_problem(error)
        case _:
            log.error(events.WEB_FAILED, reason=type(error).__name__, exc_info=error)
            return Problem(500, "internal error: see the log of the server", "internal")
