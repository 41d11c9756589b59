"""The problems that each operation may answer with, for the OpenAPI description.

A route names what only it answers: `responses=responses(404)`. What the server itself answers, whatever the operation,
is added here.
"""

from __future__ import annotations

from typing import Any

# By status: the name of the shared response, and when it is given. docs/reference/http.md has the codes too.
PROBLEMS = {
    400: (
        "BadRequest",
        "The request is ambiguous: a header that may occur once occurs twice, or the body is cut off (`bad_request`).",
    ),
    401: ("Unauthenticated", "No token was sent, or it is unknown, expired or revoked (`unauthenticated`)."),
    403: (
        "Forbidden",
        "The token lacks the role, or may not act on this topic (`forbidden`); "
        "or a page of another site sent the request"
        " (`other_origin`, `csrf`).",
    ),
    404: ("NotFound", "It does not exist, or the token may not see it (`not_found`)."),
    408: ("RequestTimeout", "The body did not arrive in time (`request_timeout`)."),
    409: ("Conflict", "It conflicts with the current state, and nothing was changed; `code` says with what."),
    413: (
        "ContentTooLarge",
        "The body is larger than `web.max_body_bytes` (`too_large`), or a payload is larger than its topic "
        "allows (`payload_too_large`).",
    ),
    415: ("UnsupportedMediaType", "The body is not `application/json` (`unsupported_media_type`)."),
    421: ("UnknownHost", "The host name is not one of `web.allowed_hosts` (`unknown_host`)."),
    422: ("InvalidRequest", "The request is invalid; `detail` says what and where, and `errors` lists all errors."),
    429: (
        "TooManyRequests",
        "Too many requests had a wrong token (`too_many_failures`), or this operation has reached its limit. "
        "Try again after `Retry-After`.",
    ),
    431: (
        "HeadersTooLarge",
        "The request has more than 200 headers (`too_many_headers`), or more than 64 KiB of them.",
    ),
    503: (
        "Unavailable",
        "The database or the server is unavailable or busy (`unavailable`): try again after `Retry-After`.",
    ),
}
OF_EACH_OPERATION = (400, 401, 403, 421, 429, 431, 503)
OF_A_BODY = (408, 413, 422)
OF_PARAMETERS = (422,)

CONTENT = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}}
RETRY_AFTER = {"Retry-After": {"description": "How many seconds to wait.", "schema": {"type": "integer"}}}


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the problems that a route gives by itself, to declare them."""
    return {status: _reference(status) for status in statuses}


def add_problem_responses(operation: dict[str, Any]) -> None:
    """Add to an operation what the server answers by itself, in the order of the statuses."""
    given = {*OF_EACH_OPERATION}
    given |= {*OF_A_BODY} if "requestBody" in operation else set()
    given |= {*OF_PARAMETERS} if operation.get("parameters") else set()
    # What FastAPI adds for a request that is not valid.
    operation["responses"].pop("422", None)
    problems = {
        str(status): _reference(status)
        for status in PROBLEMS
        if status in given or str(status) in operation["responses"]
    }
    operation["responses"] = dict(sorted((operation["responses"] | problems).items()))


def shared_responses() -> dict[str, dict[str, Any]]:
    """Return the shared responses by their names."""
    return {name: _response(status, text) for status, (name, text) in PROBLEMS.items()}


def _response(status: int, text: str) -> dict[str, Any]:
    headers = {"headers": RETRY_AFTER} if status in (429, 503) else {}
    return {"description": text, **headers, "content": CONTENT}


def _reference(status: int) -> dict[str, Any]:
    return {"$ref": f"#/components/responses/{PROBLEMS[status][0]}"}
