"""Run a user's function over one claimed batch, and settle the messages by what it returns or raises."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from pgrouse.errors import ConfigError
from pgrouse.handlers.outcome import describe
from pyspark_pgrouse.claim.batch_settler import BatchSettler
from pyspark_pgrouse.claim.bisection import Bisection
from pyspark_pgrouse.claim.in_flight import ClaimRef
from pyspark_pgrouse.claim.outcome import COUNTS, OPTIONAL, AttemptOutcome, SettledCounts
from pyspark_pgrouse.session import check_alive

BatchFunction = Callable[["DataFrame"], "DataFrame | None"]
SUCCEEDED = AttemptOutcome()


@dataclass(frozen=True)
class BatchResult:
    """One batch that ran.

    Attributes:
        batch: Spark's number of it; a batch that is read again after a crash has the same.
        settled: how its messages ended.
        seconds: how long the function and the settling took.
        error: what the function raised over the whole batch, as the archive has it; None = nothing.
        at_fault: the messages that made it raise, each with what it raised over that one alone.
        has_failed: whether it went on to raise: messages were given back, or it worked none.
    """

    batch: int
    settled: SettledCounts
    seconds: float
    error: str | None = None
    at_fault: dict[int, str] = field(default_factory=dict)
    has_failed: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return all of it."""
        return {
            "batch": self.batch,
            "messages": self.settled.total,
            **{became: self.settled.counts.get(became, 0) for became in COUNTS},
            "dead": self.settled.dead,
            "lost": self.settled.lost,
            "seconds": round(self.seconds, 3),
            "error": self.error,
            "at_fault": sorted(self.at_fault),
            "failed_as_a_whole": self.has_failed,
        }


def run_batch(
    function: BatchFunction,
    batch: DataFrame,
    number: int,
    settler: BatchSettler,
    is_stopped: Callable[[], bool] = lambda: False,
) -> BatchResult:
    """Call the function with a batch, and settle all of its messages.

    What the function returns names messages and outcomes; those that it does not name succeed. If it raises, or its result cannot be
    computed, it is called with parts of the batch, until it is found which messages make it raise; see `Bisection`.

    Args:
        function: what works the batch.
        batch: what Spark has read.
        number: Spark's number of it.
        settler: settles it.
        is_stopped: whether the search in a batch is to end.

    Raises:
        DatabaseUnreachable: nothing could be settled.
        SparkEnded: Spark is gone; nothing was settled.
    """
    started = time.monotonic()
    worked = _run_part(function, batch, lambda: settler.held(batch), settler)
    if isinstance(worked, SettledCounts):
        return BatchResult(number, worked, time.monotonic() - started)
    search = Bisection(
        lambda part: _run_part(function, _part(batch, part), lambda: part, settler), settler.settle, is_stopped
    )
    search.run(settler.held(batch), worked)
    return BatchResult(number, search.settled, time.monotonic() - started, worked, search.at_fault, search.has_failed)


def _run_part(
    function: BatchFunction, part: DataFrame, held: Callable[[], Sequence[ClaimRef]], settler: BatchSettler
) -> SettledCounts | str:
    """Call the function, and settle what the part still holds; return the error if it raised."""
    try:
        outcomes = _outcomes_by_id(function(part))
    except Exception as raised:  # noqa: BLE001 - whatever a function of the user's raises
        # Without Spark every function raises: that says nothing of this one.
        check_alive(part.sparkSession)
        return describe(raised)
    return settler.settle([(id_, claim, outcomes.get(id_, SUCCEEDED)) for id_, claim in held()])


def _part(batch: DataFrame, part: Sequence[ClaimRef]) -> DataFrame:
    """Return the part of a batch that has these messages; they are a run of those that it holds, by id."""
    return batch.where(f.col("id").between(part[0][0], part[-1][0]))


def _outcomes_by_id(outcomes: Any) -> dict[int, AttemptOutcome]:
    """Return the outcomes that a function returned, by message id. They are computed here, once: an error in them is the function's."""
    if outcomes is None:
        return {}
    if not isinstance(outcomes, DataFrame):
        raise ConfigError(f"it returned a {type(outcomes).__name__}: expected a DataFrame, or None if all is well")
    if missing := {"id", "outcome"} - set(outcomes.columns):
        raise ConfigError(f"the DataFrame that it returned has no column {' and '.join(sorted(missing))}")
    chosen = outcomes.select("id", *(name for name in OPTIONAL if name in outcomes.columns))
    return {row["id"]: AttemptOutcome.parse(row) for row in chosen.toArrow().to_pylist()}
