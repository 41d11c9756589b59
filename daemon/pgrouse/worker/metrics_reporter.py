"""What a daemon reports to the database of its measures: every few seconds the difference to the report before."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pgrouse.worker.metrics_recorder import Meter, Meters

Sums = dict[str, int | list[int]]


@dataclass(frozen=True, slots=True)
class Report:
    """One report.

    Attributes:
        number: growing; the database takes each number in once.
        measures: the argument of messages.worker_measured, as JSON.
    """

    number: int
    measures: str


class Reports:
    """Makes the reports of one daemon. One thread asks for them.

    Of a report whose answer was lost nobody knows whether it arrived: it is the next one again, to the letter, and arrives once. What was
    measured since the last report is lost when the daemon dies.
    """

    def __init__(self, meters: Meters) -> None:
        self.meters = meters
        self._number = 0
        self._open: Report | None = None
        self._before: dict[str, Sums] = {}

    @property
    def is_open(self) -> bool:
        """Whether a report was made that has not arrived."""
        return self._open is not None

    def next(self) -> Report | None:
        """Return the report that is to be sent now: the last one, if it has not arrived; None if there is nothing to tell."""
        if self._open is None:
            self._open = self._make()
        return self._open

    def arrived(self) -> None:
        """The database has taken it in."""
        self._open = None

    def _make(self) -> Report | None:
        self.meters.sort_in()
        now = {topic: _sums(meter) for topic, meter in list(self.meters.topics.items())}
        measures = [
            {"topic": topic, **grown} for topic, sums in now.items() if (grown := _grown(sums, self._before.get(topic)))
        ]
        if not measures:
            return None
        self._before = now
        self._number += 1
        return Report(self._number, json.dumps(measures))


def _sums(meter: Meter) -> Sums:
    return {
        **{result.value: count for result, count in meter.results.items()},
        "waits": list(meter.waits.counts),
        "runs": list(meter.runs.counts),
        "wakes": list(meter.wakes.counts),
    }


def _grown(sums: Sums, before: Sums | None) -> dict[str, Any]:
    """Return what has grown, by column: a number, or for histograms the numbers of the buckets that have."""
    grown: dict[str, Any] = {}
    for name, now in sums.items():
        was = None if before is None else before[name]
        if isinstance(now, list):
            olds = was if isinstance(was, list) else [0] * len(now)
            more: Any = {nth: new - old for nth, (new, old) in enumerate(zip(now, olds, strict=True), 1) if new != old}
        else:
            more = now - (was if isinstance(was, int) else 0)
        if more:
            grown[name] = more
    return grown
