"""Tokens, sessions and idempotent requests of the web server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pgrouse.client.call import Call, binding
from pgrouse.config.duration import AnyDuration


@dataclass(frozen=True, slots=True)
class TokenHolder:
    """The token of a caller: its name, and what it may do."""

    name: str
    roles: list[str]
    topics: list[str]


@dataclass(frozen=True, slots=True)
class SavedAnswer:
    """The answer of a request that was sent before."""

    status: int
    answer: str


@binding
def add_token(
    name: str,
    digest: bytes,
    roles: Sequence[str],
    topics: Sequence[str] | None = None,
    expires: AnyDuration | None = None,
) -> Call[None]:
    """Add a token, by the SHA-256 of its secret."""


@binding
def revoke_token(name: str) -> Call[bool]:
    """Revoke a token and end its sessions; return whether it was valid."""


@binding
def check_token(digest: bytes) -> Call[TokenHolder | None]:
    """Look up a token; None = it is not valid."""


@binding
def open_session(token: bytes, digest: bytes, for_: AnyDuration) -> Call[bool]:
    """Open a session; return whether its token is valid."""


@binding
def open_user_session(
    user: str, digest: bytes, roles: Sequence[str], topics: Sequence[str], for_: AnyDuration
) -> Call[None]:
    """Open a session of a user whom a provider has identified."""


@binding
def check_session(digest: bytes) -> Call[TokenHolder | None]:
    """Look up a session; None = it is not valid."""


@binding
def close_session(digest: bytes) -> Call[bool]:
    """End a session; return whether there was one."""


@binding
def begin_request(caller: str, key: str, digest: bytes) -> Call[SavedAnswer | None]:
    """Begin a request that is executed only once; return the answer if it was answered before."""


@binding
def end_request(caller: str, key: str, status: int, answer: str) -> Call[None]:
    """Store the answer of a request."""
