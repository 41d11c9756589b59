"""The caller of a request, and its permissions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from pgrouse.values.topic_pattern import matches

if TYPE_CHECKING:
    from pgrouse.web.access.redaction import Redactor


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
        topics: its topics: names, patterns, beginnings that end with `*`, or `*`: see `topic_pattern.matches`.
        redactor: decides which contents of messages it sees; set by the web server. None: all.
    """

    name: str
    roles: frozenset[Role]
    topics: tuple[str, ...] = ALL_TOPICS
    redactor: Redactor | None = field(default=None, compare=False, repr=False)

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
        """Return whether a topic, or all topics of a pattern, match one of the patterns."""
        return self.sees_all or any(matches(pattern, topic) for pattern in self.topics)

    @property
    def limited_to(self) -> Sequence[str] | None:
        """Its topics, for lists that are limited to some; None: the caller may see all topics."""
        return None if self.sees_all else self.topics


# On loopback, while no token was ever created: any user who can reach the port can also read the configuration.
LOCAL = Caller("local", frozenset(Role))
