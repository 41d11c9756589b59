"""A service level objective: the share of messages that should succeed, and within what time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta

from pgrouse.config.duration import parse, show

EXPECTED = 'expected an SLO like "99%:5s", or "topic=99.9%:2s" for one topic: a share below 100%, and a total time'
# A topic may have any character, '=' too: the last one counts.
_GOAL = re.compile(r"(?:(?P<topic>.+)=)?(?P<percent>\d{1,2}(?:\.\d+)?)%:(?P<within>[^:=%]+)", re.DOTALL)


@dataclass(frozen=True)
class Slo:
    """At least `share` of the messages that end in `topic` succeed within `within` after they were due.

    None = in all topics.
    """

    share: float
    within: timedelta
    topic: str | None = None

    @classmethod
    def parse(cls, text: str) -> Slo:
        """Parse an SLO as it is written on a command line.

        Raises:
            ValueError: it is not an SLO.
        """
        found = _GOAL.fullmatch(text)
        share = round(float(found["percent"]) / 100, 12) if found else 0
        if found is None or not share:
            raise ValueError(f"{EXPECTED}; found {text!r}")
        within = parse(found["within"])
        if not within:
            raise ValueError(f"{EXPECTED}; found {text!r}")
        return cls(share, within, found["topic"])

    @property
    def name(self) -> str:
        """The SLO in the form that `parse` reads."""
        topic = "" if self.topic is None else f"{self.topic}="
        return f"{topic}{round(self.share * 100, 10):g}%:{show(self.within)}"

    @property
    def goal(self) -> str:
        """The goal of the share, for people: `mail within 2s`."""
        return f"{'all topics' if self.topic is None else self.topic} within {show(self.within)}"

    @property
    def budget(self) -> float:
        """The share that may miss the SLO."""
        return 1 - self.share
