"""One claimed batch through a function of the user's: what it says of its messages, and what it means if it raises."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgrouse.errors import ConfigError
from pgrouse.outcome import describe
from pyspark_pgrouse.claim.desk import ClaimDesk
from pyspark_pgrouse.claim.outcome import OPTIONAL, Outcome, Settled, after_of, outcome_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Function = Callable[["DataFrame"], "DataFrame | None"]
# What was said of a message: outcome, reason, after.
Said = dict[int, tuple[str, str | None, Any]]
SUCCEEDED = (Outcome.SUCCESS, None, None)


@dataclass(frozen=True)
class Ran:
    """One batch that ran.

    Attributes:
        batch: Spark's number of it; a batch that is read again after a crash has the same.
        settled: how its messages ended.
        seconds: how long the function and the settling took.
        error: what the function raised, as the archive has it; None = nothing.
    """

    batch: int
    settled: Settled
    seconds: float
    error: str | None = None

    def as_json(self) -> dict[str, Any]:
        """Return all of it."""
        return {
            "batch": self.batch,
            "messages": self.settled.total,
            **{outcome.value: self.settled.counts.get(outcome, 0) for outcome in Outcome},
            "lost": self.settled.lost,
            "seconds": round(self.seconds, 3),
            "error": self.error,
        }


def run(function: Function, batch: DataFrame, number: int, desk: ClaimDesk) -> Ran:
    """Call the function with a batch, and settle all of its messages.

    What the function returns names messages and outcomes; those that it does not name succeed. If it raises, or its result cannot be
    computed, the attempt of every message has failed: its topic's policy says whether there is another one.

    Raises:
        DatabaseUnreachable: nothing could be settled.
    """
    began = time.monotonic()
    said: Said = {}
    error = None
    try:
        said = _said(function(batch))
    except Exception as raised:  # noqa: BLE001 - whatever a function of the user's raises
        error = describe(raised)
    usual = SUCCEEDED if error is None else (Outcome.RETRY, error, None)
    rows = [(id_, claim, *said.get(id_, usual)) for id_, claim in desk.held(batch)]
    return Ran(number, desk.settle(rows), time.monotonic() - began, error)


def _said(outcomes: Any) -> Said:
    """Return what a function said of which message. It is computed here, once: an error in it is one of the function."""
    from pyspark.sql import DataFrame  # noqa: PLC0415 - only drivers need it

    if outcomes is None:
        return {}
    if not isinstance(outcomes, DataFrame):
        raise ConfigError(f"it returned a {type(outcomes).__name__}: expected a DataFrame, or None if all is well")
    if missing := {"id", "outcome"} - set(outcomes.columns):
        raise ConfigError(f"the DataFrame that it returned has no column {' and '.join(sorted(missing))}")
    chosen = outcomes.select("id", *(name for name in OPTIONAL if name in outcomes.columns))
    return {row["id"]: _checked(row) for row in chosen.toArrow().to_pylist()}


def _checked(row: dict[str, Any]) -> tuple[str, str | None, Any]:
    return outcome_of(row["outcome"]), row.get("reason"), after_of(row.get("after"))
