"""The units of deploy/systemd, as the tests read them."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

SYSTEMD = Path(__file__).parents[2] / "deploy" / "systemd"
JOBS = ("export", "report")
NAMES = (
    "pgrouse.service",
    "pgrouse@.service",
    "pgrouse-web.service",
    *(f"pgrouse-{job}.{kind}" for job in JOBS for kind in ("service", "timer")),
)


class Unit:
    """One unit: every setting with all its values, in order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.path = SYSTEMD / name
        self.settings: dict[str, list[str]] = defaultdict(list)
        for line in self.path.read_text().splitlines():
            key, equals, value = line.partition("=")
            if equals and not line.startswith("#"):
                self.settings[key].append(value)

    def one(self, key: str) -> str:
        """Return the only value of a setting."""
        (value,) = self.settings[key]
        return value

    @property
    def environment(self) -> dict[str, str]:
        """The variables that it sets."""
        pairs = [pair for line in self.settings["Environment"] for pair in line.split()]
        return dict(pair.split("=", 1) for pair in pairs)
