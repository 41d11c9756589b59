"""What the harness recorded of a run, as one row of a table."""

from __future__ import annotations

import csv
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.figure import table
from bench.harness.ledger import Check

WARM_UP = "warmup"
# In a cell without a value.
UNKNOWN = "-"


@dataclass(frozen=True)
class Phase:
    """What was measured in one phase.

    Attributes:
        label: its label in the harness.
        kind: its type in the harness.
        published_per_s: the median of the rate at which messages were published; None if no adapter told.
        completed_per_s: the same of completed messages.
        claim_p99_ms: from the publish to the start of the handler, in the last 30 seconds of the phase; None if no
            message began.
        dead_tuples: of all its tables, at the end of the phase; None if the server did not tell.
        waiting: messages that wait at the end of the phase.
    """

    label: str
    kind: str
    published_per_s: float | None
    completed_per_s: float | None
    claim_p99_ms: float | None
    dead_tuples: float | None
    waiting: float | None

    def __str__(self) -> str:
        if self.completed_per_s is None:
            return UNKNOWN
        p99 = "" if self.claim_p99_ms is None else f", {self.claim_p99_ms:,.0f} ms"
        return f"{self.completed_per_s:,.0f}/s{p99}"


@dataclass(frozen=True)
class Result:
    """What one system did in one scenario.

    Attributes:
        system: its name.
        phases: its measured phases.
        published: how many messages its adapters counted as published in the whole run.
        completed: the same of completed messages; a killed process has not counted its last ones.
        check: what became of its messages, where that can be told.
        error: why it did not complete the scenario; empty if it did.
        raw: the file with all that the harness recorded.
    """

    system: str
    phases: list[Phase]
    published: float
    completed: float
    check: Check | None
    error: str
    raw: Path

    @classmethod
    def read(cls, raw: Path, system: str, phases: list[tuple[str, str]], check: Check | None, error: str) -> Result:
        """Read what the harness recorded in a `raw.csv`; phases: the label and the type of each."""
        with raw.open(newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["system"] == system]
        found = [_phase(rows, label, kind) for label, kind in phases if kind != WARM_UP]
        published, completed = (_total(rows, metric) for metric in ("enqueue_rate", "completion_rate"))
        return cls(system, found, published, completed, check, error, raw)

    @property
    def cells(self) -> list[str]:
        """Its row of a table."""
        dead = [UNKNOWN if each.dead_tuples is None else f"{each.dead_tuples / 1000:,.0f}" for each in self.phases]
        last = self.phases[-1] if self.phases else None
        return [
            self.system,
            *map(str, self.phases),
            " ".join(dead),
            UNKNOWN if last is None or last.waiting is None else f"{last.waiting:,.0f}",
            f"{self.completed:,.0f} of {self.published:,.0f}",
            str(self.check or UNKNOWN),
            self.error,
        ]

    def as_json(self) -> dict[str, Any]:
        """Return all of it."""
        return {**asdict(self), "raw": str(self.raw)}


@dataclass
class ScenarioReport:
    """The results of one scenario.

    Attributes:
        name: the name of the scenario.
        about: what happens in it, and under which load.
        results: one of each system.
        notes: what a reader must know to read them.
    """

    name: str
    about: str
    results: list[Result] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return all of it."""
        results = [result.as_json() for result in self.results]
        return {"name": self.name, "about": self.about, "results": results, "notes": self.notes}

    def as_text(self) -> str:
        """Return a heading, a Markdown table and the notes."""
        kinds = [phase.kind for phase in self.results[0].phases]
        header = ["system", *kinds, "dead tuples, thousands", "waiting at the end", "completed", "checked", ""]
        rows = table([header, *(result.cells for result in self.results)])
        return "\n".join([f"## {self.name}", "", self.about, "", *rows, "", *self.notes])


def _phase(rows: Sequence[dict[str, str]], label: str, kind: str) -> Phase:
    mine = [row for row in rows if row["phase_label"] == label]
    return Phase(
        label,
        kind,
        _median(_rates(mine, "enqueue_rate")),
        _median(_rates(mine, "completion_rate")),
        max(_last_by(mine, "claim_p99_ms", "instance_id"), default=None),
        _sum(_last_by(mine, "n_dead_tup", "subject")),
        max(_last_by(mine, "queue_depth", "instance_id"), default=None),
    )


def _rates(rows: Sequence[dict[str, str]], metric: str) -> list[float]:
    """Return the sums over the processes, second by second."""
    sums: dict[str, float] = defaultdict(float)
    for row in rows:
        if row["metric"] == metric:
            sums[row["sampled_at"][:19]] += float(row["value"])
    return list(sums.values())


def _total(rows: Sequence[dict[str, str]], metric: str) -> float:
    return sum(float(row["value"]) * float(row["window_s"]) for row in rows if row["metric"] == metric)


def _last_by(rows: Sequence[dict[str, str]], metric: str, column: str) -> list[float]:
    """Return the last value for each value of a column."""
    return list({row[column]: float(row["value"]) for row in rows if row["metric"] == metric}.values())


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _sum(values: Sequence[float]) -> float | None:
    return sum(values) if values else None
