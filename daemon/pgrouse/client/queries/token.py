"""The tokens of the web server."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from pgrouse.client.call import Call, query_call, value

STATE = """
  CASE
    WHEN t.revoked_at IS NOT NULL THEN 'revoked'
    WHEN t.expires_at <= clock_timestamp() THEN 'expired'
    ELSE 'good'
  END"""
TOKENS = f"""
  SELECT t.name, t.roles, t.topics, t.created_at, t.created_by, t.expires_at, t.last_used_at, t.revoked_at,
         {STATE} AS state,
         clock_timestamp() - t.last_used_at AS used, clock_timestamp() - t.expires_at AS expires
  FROM messages.token AS t"""  # noqa: S608 - constants only
HAS_TOKENS = f"""
  SELECT EXISTS (SELECT FROM messages.token AS t WHERE %(state)s::text IS NULL OR {STATE} = %(state)s)"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class StoredToken:
    """A token, without its secret.

    Attributes:
        roles: some of viewer, publisher, worker and operator.
        topics: names, patterns, or beginnings that end with `*`.
        created_at: when it was created.
        created_by: who created it.
        expires_at: when it expires; None: never.
        last_used_at: when it was last used, exact to five minutes.
        revoked_at: when it was revoked; None: it was not.
        state: good, expired or revoked.
        used: how long ago.
        expires: how long ago; negative if that is to come.
    """

    name: str
    roles: list[str]
    topics: list[str]
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None
    state: str
    used: timedelta | None
    expires: timedelta | None


def find_tokens() -> Call[list[StoredToken]]:
    """Read all tokens, by name."""
    return query_call(TOKENS, StoredToken, "ORDER BY f.name")


def has_tokens(state: str | None = None) -> Call[bool]:
    """Say whether there is a token; state: only one in this state."""
    return Call(HAS_TOKENS.encode(), {"state": state}, value)
