"""The offset of a claim stream: which claims made the micro-batch that ends there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pgrouse.errors import ConfigError

VERSION = 1


@dataclass(frozen=True)
class ClaimOffset:
    """The claims of one micro-batch; none before the first.

    Claims have no order, so a batch is not the way from its start to its end: it is its end. The start is the batch before.
    """

    claims: tuple[int, ...] = ()

    def as_offset(self) -> dict[str, Any]:
        """Return it as Spark writes it into a checkpoint: Spark takes numbers and text there, no lists."""
        return {"v": VERSION, "claims": ",".join(map(str, self.claims))}

    @classmethod
    def from_offset(cls, offset: dict[str, Any]) -> ClaimOffset:
        """Read it back.

        Raises:
            ConfigError: it is none, or one of a later version.
        """
        match offset:
            case {"v": 1, "claims": ""}:
                return cls()
            case {"v": 1, "claims": str(claims)} if claims.replace(",", "").isdecimal():
                return cls(tuple(map(int, claims.split(","))))
        raise ConfigError(
            f"not an offset of a claim stream: {offset!r}; this checkpoint belongs to another mode or a later version"
        )
