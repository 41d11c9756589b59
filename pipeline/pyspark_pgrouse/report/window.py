"""The time of a report: which part is shown, what it is compared with, and the resolution."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

# The maximum number of points of a chart: more cannot be seen, and the page would grow with the window.
POINTS = 300
STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
MINUTE_S = 60
WEEK = timedelta(days=7)


@dataclass(frozen=True)
class Window:
    """From `since` to before `until`; a message belongs to the time at which it ended.

    Attributes:
        since: the beginning of the time that is shown.
        until: its end.
        mark: messages that ended from here on are compared with those that ended before; None = there is no comparison.
        read_since: the beginning of the time that is read: before `since`, if there is a comparison.
    """

    since: datetime
    until: datetime
    mark: datetime | None = None
    read_since: datetime | None = None

    @classmethod
    def after_baseline(cls, since: datetime, until: datetime, baseline: timedelta) -> Window:
        """Compare the whole window with the time of length `baseline` before it."""
        return cls(since, until, mark=since, read_since=since - baseline)

    @property
    def first(self) -> datetime:
        """The start of the time that is read."""
        return self.read_since or self.since

    @property
    def seconds(self) -> float:
        """The length of the time that is shown."""
        return (self.until - self.since).total_seconds()

    @property
    def before_s(self) -> float:
        """The length of the time before the mark; 0 without a mark."""
        return (self.mark - self.first).total_seconds() if self.mark else 0.0

    @property
    def after_s(self) -> float:
        """The length of the time from the mark on; 0 without a mark."""
        return (self.until - self.mark).total_seconds() if self.mark else 0.0

    @property
    def is_deploy(self) -> bool:
        """Whether the mark is within the time that is shown."""
        return self.mark is not None and self.since < self.mark

    @property
    def bucket_s(self) -> int:
        """The width of one point of a chart, in seconds."""
        for step in STEPS_S:
            if self._points(step) <= POINTS:
                return step
        days = math.ceil(self.seconds / POINTS / STEPS_S[-1])
        return next(n for n in range(days, days + 3) if self._points(n * STEPS_S[-1]) <= POINTS) * STEPS_S[-1]

    @property
    def step_s(self) -> int:
        """The width of one row of the tables by time: a minute; less if the window is only a few minutes long."""
        return min(MINUTE_S, self.bucket_s)

    def starts(self) -> list[datetime]:
        """Return where each bucket begins. The first may begin before the window."""
        first, step = self._first_bucket(self.bucket_s), self.bucket_s
        return [datetime.fromtimestamp(first + i * step, UTC) for i in range(self._points(step))]

    def weeks(self) -> list[datetime]:
        """Return where each whole week that is read begins.

        Weeks are counted back from the end, so that the last one is whole too.
        """
        count = (self.until - self.first) // WEEK
        return [self.until - WEEK * n for n in range(count, 0, -1)]

    def fitted(self, first: datetime | None, last: datetime | None) -> Window:
        """Return the window without the empty time around its rows, if they fill less than half of it."""
        if first is None or last is None or self.mark or (last - first).total_seconds() * 2 >= self.seconds:
            return self
        air = max((last - first) / 20, timedelta(seconds=1))
        return replace(self, since=max(self.since, first - air), until=min(self.until, last + air))

    def _first_bucket(self, step: int) -> int:
        return math.floor(self.since.timestamp() / step) * step

    def _points(self, step: int) -> int:
        return math.ceil((self.until.timestamp() - self._first_bucket(step)) / step)
