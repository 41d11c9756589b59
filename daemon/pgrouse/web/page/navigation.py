"""The places of the dashboard: what its navigation leads to, and the key that goes there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NavLink:
    """One link of the navigation.

    Attributes:
        title: its text.
        path: where it leads.
        key: pressed after `g` it goes there.
        starts_group: a line is drawn above it.
    """

    title: str
    path: str
    key: str
    starts_group: bool = False

    def contains(self, path: str) -> bool:
        """Say whether a page is this place, or below it."""
        return path == self.path or (self.path != "/" and path.startswith(f"{self.path}/"))


NAVIGATION = (
    NavLink("Overview", "/", "o"),
    NavLink("Topics", "/topics", "t"),
    NavLink("Messages", "/messages", "m"),
    NavLink("Dead letters", "/dead", "d"),
    NavLink("Schedules", "/schedules", "s"),
    NavLink("Workers", "/workers", "w"),
    NavLink("Alerts", "/alerts", "l"),
    NavLink("Archive", "/archive", "e"),
    NavLink("Doctor", "/doctor", "c", starts_group=True),
    NavLink("Runbooks", "/runbooks", "r"),
    NavLink("Audit", "/audit", "a"),
    NavLink("Tokens", "/tokens", "k"),
    NavLink("HTTP API", "/v1/docs", "h"),
)
