"""Who asks, and what he may do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """What a token may be used for. An operator may do what a viewer may; else no role holds another."""

    VIEWER = "viewer"
    PUBLISHER = "publisher"
    WORKER = "worker"
    OPERATOR = "operator"


ALL_TOPICS = ("*",)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: a token, or the operator of this machine.

    Attributes:
        name: the token's name.
        roles: what it may do.
        topics: patterns of the topics that it may do it with: a name, or a beginning and `*`.
    """

    name: str
    roles: frozenset[Role]
    topics: tuple[str, ...] = ALL_TOPICS

    @property
    def sees_all(self) -> bool:
        """Whether no topic is closed to him."""
        return "*" in self.topics

    def has(self, role: Role) -> bool:
        """Say whether he has a role, whatever the topics."""
        return role in self.roles or (role is Role.VIEWER and Role.OPERATOR in self.roles)

    def may(self, role: Role, topic: str | None = None) -> bool:
        """Say whether he may act in a role on a topic; without a topic, on what belongs to all of them."""
        if not self.has(role):
            return False
        return self.sees_all if topic is None else self.sees(topic)

    def sees(self, topic: str) -> bool:
        """Say whether a topic fits one of his patterns. Dead letters belong to the topic where they died."""
        return self.sees_all or any(_fits(name, topic) for name in self.topics)

    @property
    def like(self) -> list[str]:
        """The patterns for `topic LIKE ANY (…)` in SQL."""
        return [_like(pattern) for pattern in self.topics]


def _fits(pattern: str, topic: str) -> bool:
    return topic.startswith(pattern[:-1]) if pattern.endswith("*") else topic == pattern


def _like(pattern: str) -> str:
    escaped = pattern.rstrip("*").replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"{escaped}%" if pattern.endswith("*") else escaped


# On loopback, while no token was ever made: whoever can reach the port can also read the configuration.
LOCAL = Caller("local", frozenset(Role))
