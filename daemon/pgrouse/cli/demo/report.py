"""The results: a table for people, JSON for programs."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from pgrouse.cli.demo.latency import LostNotifications, WakeLatency
from pgrouse.cli.demo.progress_watch import Counts
from pgrouse.cli.demo.verification import Verification
from pgrouse.cli.demo.worker_kill import WorkerKill

RESULTS = ("success", "rejected", "failed", "lock_expired")


@dataclass(frozen=True)
class DemoReport:
    """The results of a demo.

    Attributes:
        database: the database of the demo.
        directory: the folder of the files.
        topics: how the messages of each topic ended.
        files_per_s: files read per second, without those of the killed worker.
        retry_pauses_s: how long a failing message waited between its attempts.
        alerts_heard: notifications on dead_message.
        work_began_after_s: from the start of the command until the first message had ended.
        took_s: the time of the whole demo.
        checks: the results of the verification.
    """

    database: str
    directory: str
    topics: list[dict[str, Any]]
    files_per_s: float
    retry_pauses_s: list[float]
    killed: WorkerKill
    wake: WakeLatency
    lost_notifications: LostNotifications
    alerts_heard: int
    work_began_after_s: float
    took_s: float
    checks: list[Verification]

    @property
    def balanced(self) -> bool:
        """Whether all checks passed."""
        return all(each.ok for each in self.checks)

    def as_json(self) -> str:
        """Return all of it as JSON; the names of times contain their unit."""
        return json.dumps({"balanced": self.balanced, **_rounded(asdict(self))}, indent=2)


def topics(published: dict[str, int], counts: Counts) -> list[dict[str, Any]]:
    """Return one row per topic."""
    return [
        {
            "topic": topic,
            "published": number,
            **{result: counts.get((topic, result), 0) for result in RESULTS},
            "waiting": counts.get((topic, None), 0),
        }
        for topic, number in published.items()
    ]


def table(topics: list[dict[str, Any]]) -> list[list[str]]:
    """Return the table of results: titles, a row per topic, and their sum."""
    titles = list(topics[0])
    total = {"topic": "all", **{title: sum(row[title] for row in topics) for title in titles[1:]}}
    return [[title.upper() for title in titles], *([_cell(row[title]) for title in titles] for row in [*topics, total])]


def _cell(value: str | int) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,}" if value else "-"


def _rounded(value: Any) -> Any:
    match value:
        case float():
            return round(value, 3)
        case dict():
            return {key: _rounded(inner) for key, inner in value.items()}
        case list():
            return [_rounded(inner) for inner in value]
    return value
