"""The caller of a request, and its permissions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """A role of a token. An operator is also a viewer; otherwise no role includes another."""

    VIEWER = "viewer"
    PUBLISHER = "publisher"
    WORKER = "worker"
    OPERATOR = "operator"


ALL_TOPICS = ("*",)


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller: a token, or the local operator.

    Attributes:
        name: the token's name.
        roles: its roles.
        topics: patterns of its topics: a name, or a prefix and `*`.
    """

    name: str
    roles: frozenset[Role]
    topics: tuple[str, ...] = ALL_TOPICS

    @property
    def sees_all(self) -> bool:
        """Whether the caller may see all topics."""
        return "*" in self.topics

    def has(self, role: Role) -> bool:
        """Return whether the caller has a role, for any topic."""
        return role in self.roles or (role is Role.VIEWER and Role.OPERATOR in self.roles)

    def may(self, role: Role, topic: str | None = None) -> bool:
        """Return whether the caller has a role for a topic; without a topic: for all topics."""
        if not self.has(role):
            return False
        return self.sees_all if topic is None else self.sees(topic)

    def sees(self, topic: str) -> bool:
        """Return whether a topic matches one of the patterns."""
        return self.sees_all or any(_fits(name, topic) for name in self.topics)

    @property
    def like(self) -> list[str] | None:
        """The patterns for `topic LIKE ANY (…)` in SQL; None: the caller may see all topics."""
        return None if self.sees_all else [_like(pattern) for pattern in self.topics]


def _fits(pattern: str, topic: str) -> bool:
    return topic.startswith(pattern[:-1]) if pattern.endswith("*") else topic == pattern


def _like(pattern: str) -> str:
    escaped = pattern.rstrip("*").replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"{escaped}%" if pattern.endswith("*") else escaped


# On loopback, while no token was ever created: any user who can reach the port can also read the configuration.
LOCAL = Caller("local", frozenset(Role))
