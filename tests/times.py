"""Where the time of the tests goes: a table by folder, and the slowest tests.

As a plugin it appends a line for each test to the file that PGROUSE_TEST_TIMES names; `python -m tests.times FILE`
prints the tables.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

SLOWEST = 10


class Recorder:
    """A plugin that appends `[node id, phase, seconds]` as a line of JSON for each phase of each test."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("a", encoding="utf-8")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write one phase. With several processes, this is called in the one that collects their reports."""
        # The sessions that tests of fixtures start are left out.
        if report.nodeid.startswith("tests/"):
            self._file.write(json.dumps([report.nodeid, report.when, report.duration]) + "\n")

    def pytest_unconfigure(self) -> None:
        """Close the file."""
        self._file.close()


def recorder() -> Recorder | None:
    """Return the plugin, if the environment names a file."""
    file = os.environ.get("PGROUSE_TEST_TIMES")
    return Recorder(Path(file)) if file else None


def table(lines: Iterable[str]) -> str:
    """Return the tables of a recorded run."""
    seconds: dict[str, float] = defaultdict(float)
    for line in lines:
        node, _, duration = json.loads(line)
        seconds[node] += duration
    return "\n".join([*_by_folder(seconds), "", *_slowest(seconds)])


def _by_folder(seconds: dict[str, float]) -> list[str]:
    total = sum(seconds.values()) or 1.0
    sums: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    for node, duration in seconds.items():
        folder = str(Path(node.partition("::")[0]).parent)
        sums[folder] += duration
        tests[folder] += 1
    rows = [
        f"{folder:24} {tests[folder]:7,} {spent:9,.0f} {spent / total:7.0%}" for folder, spent in sums.most_common()
    ]
    return [f"{'folder':24} {'tests':>7} {'seconds':>9} {'share':>7}", *rows]


def _slowest(seconds: dict[str, float]) -> list[str]:
    slowest = sorted(seconds.items(), key=lambda each: -each[1])[:SLOWEST]
    return [f"the {SLOWEST} slowest tests", *(f"{duration:8.1f} s  {node}" for node, duration in slowest)]


if __name__ == "__main__":
    print(table(Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()))
