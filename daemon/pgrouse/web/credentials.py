"""What a request shows of who asks. That it shows something decides, not whether it is any good: who shows something is never the local user."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

from fastapi import Request

COOKIE = "pgrouse_session"


@dataclass(frozen=True, slots=True)
class Token:
    """An `Authorization` header; the secret is empty if there is none in it."""

    secret: str


@dataclass(frozen=True, slots=True)
class Session:
    """The cookie of somebody who has logged in."""

    cookie: str


def credentials_of(request: Request) -> Token | Session | None:
    """Return what a request shows of who asks; None: nothing."""
    if "authorization" in request.headers:
        return Token(_secret(request.headers["authorization"]))
    return Session(request.cookies[COOKIE]) if COOKIE in request.cookies else None


def _secret(authorization: str) -> str:
    """Return the token of the header: as Bearer, or as the password of Basic, for clients that know nothing else."""
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).decode().partition(":")[2]
        except (binascii.Error, ValueError):
            return ""
    return ""
