"""Which groups of dead messages a page shows, and in which order: what stands in its address."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, urlencode

from pgrouse.web.access.database_pool import Row

RANGES = {"1d": timedelta(days=1), "7d": timedelta(days=7), "30d": timedelta(days=30)}
DEFAULT_RANGE = "7d"
MAX_LENGTH = 300
SORTS = {
    "count": lambda group: (group["redriven"] - group["count"], not group["at_least"], -group["last_seen"].timestamp()),
    "last": lambda group: -group["last_seen"].timestamp(),
    "first": lambda group: -group["first_seen"].timestamp(),
}


@dataclass(frozen=True)
class DeadFilter:
    """The choice of a viewer.

    Attributes:
        range: one of RANGES: how far back.
        topic: only this topic; "" = all.
        error: only errors that contain this text, A to Z in any case; "" = all.
        sort: one of SORTS.
    """

    range: str = DEFAULT_RANGE
    topic: str = ""
    error: str = ""
    sort: str = "count"

    @classmethod
    def parse(cls, query: str) -> DeadFilter:
        """Return what the query of an address says; what it says wrongly is left out."""
        # No text of the database has a NUL, and it takes none.
        given = {name: value[:MAX_LENGTH].replace("\0", "").strip() for name, value in parse_qsl(query)}
        return cls(
            range=given.get("of", "") if given.get("of") in RANGES else DEFAULT_RANGE,
            topic=given.get("topic", ""),
            error=given.get("error", ""),
            sort=given.get("sort", "") if given.get("sort") in SORTS else "count",
        )

    @property
    def since(self) -> timedelta:
        """How far back."""
        return RANGES[self.range]

    @property
    def is_narrowed(self) -> bool:
        """Whether groups of the time may be left out."""
        return bool(self.topic or self.error)

    @property
    def subject(self) -> str:
        """The query of an address that says the same; "" for what is shown first."""
        names = {"range": "of"}
        default = asdict(DeadFilter())
        changed = {name: value for name, value in asdict(self).items() if value != default[name]}
        return urlencode({names.get(name, name): value for name, value in changed.items()})

    def link(self, of: str) -> str:
        """Return the query of the same groups over another time."""
        return replace(self, range=of).subject or f"of={DEFAULT_RANGE}"

    def apply(self, groups: list[Row]) -> list[Row]:
        """Return the groups that fit, in order."""
        fitting = [group for group in groups if self.error.casefold() in _text(group)]
        return sorted(fitting, key=SORTS[self.sort])


def _text(group: dict[str, Any]) -> str:
    return (group["sample_error"] or "").casefold()
