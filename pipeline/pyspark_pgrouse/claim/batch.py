"""Calls a user's function with one claimed batch.

It handles the result, and searches a batch for which the function raised an exception.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from pgrouse.errors import ConfigError
from pgrouse.handlers.outcome import describe
from pyspark_pgrouse.claim.batch_settler import BatchSettler
from pyspark_pgrouse.claim.bisection import Bisection
from pyspark_pgrouse.claim.claim_ref import ClaimRef
from pyspark_pgrouse.claim.outcome import COUNTS, OPTIONAL, SUCCEEDED, AttemptOutcome, SettledCounts
from pyspark_pgrouse.errors import pgrouse_error
from pyspark_pgrouse.session import check_alive

BatchFunction = Callable[["DataFrame"], "DataFrame | None"]


@dataclass(frozen=True)
class BatchResult:
    """One batch that ran.

    Attributes:
        batch: its number in this run.
        settled: how its messages ended.
        seconds: how long the function and the settling took.
        error: the exception that the function raised for the whole batch, as the archive has it; None = none.
        at_fault: the messages that made it raise, each with its exception when the function got that message alone.
        has_failed: whether it continued to raise: messages were released, or it processed none.
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


def call_function(function: BatchFunction, frame: DataFrame) -> dict[int, AttemptOutcome] | str:
    """Call a function with messages; return the outcomes that it named, by id, or its exception, as text.

    Its result is computed here, once: an error in that counts as an error of the function.

    Raises:
        SparkEnded: Spark is gone.
    """
    try:
        return _outcomes_by_id(function(frame))
    except Exception as raised:  # noqa: BLE001 - a user's function may raise anything
        # Without Spark every function raises an exception: that is not the function's fault.
        check_alive(frame.sparkSession)
        return describe(pgrouse_error(str(raised)) or raised)


def search_batch(
    function: BatchFunction,
    frame: DataFrame,
    held: Sequence[ClaimRef],
    error: str,
    settler: BatchSettler,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Bisection:
    """Find the messages of a batch that make its function raise an exception, and settle all of them; see `Bisection`.

    Args:
        function: the function that raised the exception.
        frame: the batch.
        held: the messages that are still held, by id.
        error: the function's exception for the whole batch.
        settler: settles its messages.
        is_stopped: whether the search must end.

    Raises:
        DatabaseUnreachable: nothing could be settled.
        SparkEnded: Spark is gone.
    """

    def work(part: Sequence[ClaimRef]) -> SettledCounts | str:
        # A part is a range of the held messages, by id.
        outcomes = call_function(function, frame.where(f.col("id").between(part[0][0], part[-1][0])))
        if isinstance(outcomes, str):
            return outcomes
        return settler.settle([(id_, claim, outcomes.get(id_, SUCCEEDED)) for id_, claim in part])

    search = Bisection(work, settler.settle, is_stopped)
    search.run(held, error)
    return search


def _outcomes_by_id(outcomes: Any) -> dict[int, AttemptOutcome]:
    """Return the outcomes that a function returned, by message id."""
    if outcomes is None:
        return {}
    if not isinstance(outcomes, DataFrame):
        raise ConfigError(f"it returned a {type(outcomes).__name__}: expected a DataFrame, or None if all is well")
    if missing := {"id", "outcome"} - set(outcomes.columns):
        raise ConfigError(f"the DataFrame that it returned has no column {' and '.join(sorted(missing))}")
    chosen = outcomes.select("id", *(name for name in OPTIONAL if name in outcomes.columns))
    return {row["id"]: AttemptOutcome.parse(row) for row in chosen.toArrow().to_pylist()}
