"""The places of the dashboard: what its navigation leads to, and the key that goes there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """One link of the navigation.

    Attributes:
        title: its text.
        path: where it leads.
        key: pressed after `g` it goes there.
        begins_group: a line stands above it.
    """

    title: str
    path: str
    key: str
    begins_group: bool = False

    def holds(self, path: str) -> bool:
        """Say whether a page is this place, or below it."""
        return path == self.path or (self.path != "/" and path.startswith(f"{self.path}/"))


PLACES = (
    Place("Overview", "/", "o"),
    Place("Topics", "/topics", "t"),
    Place("Messages", "/messages", "m"),
    Place("Dead letters", "/dead", "d"),
    Place("Schedules", "/schedules", "s"),
    Place("Workers", "/workers", "w"),
    Place("Doctor", "/doctor", "c", begins_group=True),
    Place("Audit", "/audit", "a"),
)
