"""The credentials of a request. A request with credentials, even invalid ones, is never the local user."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

from fastapi import Request

COOKIE = "pgrouse_session"


@dataclass(frozen=True, slots=True)
class BearerToken:
    """An `Authorization` header; the secret is empty if the header has none."""

    secret: str


@dataclass(frozen=True, slots=True)
class SessionCookie:
    """The cookie of a session."""

    cookie: str


def read_credentials(request: Request) -> BearerToken | SessionCookie | None:
    """Return the credentials of a request; None if it has none."""
    if "authorization" in request.headers:
        return BearerToken(_secret(request.headers["authorization"]))
    return SessionCookie(request.cookies[COOKIE]) if COOKIE in request.cookies else None


def _secret(authorization: str) -> str:
    """Return the token of the header: Bearer, or the password of Basic."""
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).decode().partition(":")[2]
        except (binascii.Error, ValueError):
            return ""
    return ""
