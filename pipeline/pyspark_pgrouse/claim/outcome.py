"""How each message of a batch ended: settled from executors, by a DataFrame with a row for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

from pgrouse.config import duration
from pgrouse.errors import ConfigError
from pgrouse.handlers.outcome import to_storable_text
from pyspark_pgrouse.claim.in_flight import ClaimRefs

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame


class Outcome(StrEnum):
    """How an attempt ended."""

    SUCCESS = "success"
    RETRY = "retry"
    REJECT = "reject"
    FAIL = "fail"
    DEFER = "defer"
    RELEASE = "release"


# What the database makes of an outcome: a result of the archive; or the outcome itself, for a message that waits again.
RESULTS = {Outcome.SUCCESS: "success", Outcome.REJECT: "rejected", Outcome.FAIL: "failed"}
DEAD = ("rejected", "failed")
COUNTS = ("success", *DEAD, "cancelled", Outcome.RETRY.value, Outcome.DEFER.value, Outcome.RELEASE.value)


@dataclass(frozen=True)
class SettleResult:
    """What became of a batch, as the database says.

    Attributes:
        counts: how many messages ended how: `success`, `rejected`, `failed` and `cancelled` as the archive has them; `retry`, `defer` and
            `release` are those that wait again. A retry without an attempt left is `failed`. What does not occur is missing.
        lost: how many were not held any more: their lock had expired, or they were cancelled. Nothing was changed for them.
    """

    counts: dict[str, int] = field(default_factory=dict)
    lost: int = 0

    @classmethod
    def of(cls, counted: Iterable[tuple[str, int]], lost: int) -> SettleResult:
        """Add up what was counted, here and there."""
        counts: Counter[str] = Counter()
        for became, count in counted:
            counts[became] += count
        return cls({became: count for became, count in counts.items() if count}, lost)

    def __add__(self, other: SettleResult) -> SettleResult:
        return SettleResult.of([*self.counts.items(), *other.counts.items()], self.lost + other.lost)

    @property
    def total(self) -> int:
        """How many messages there were, the lost ones included."""
        return sum(self.counts.values()) + self.lost

    @property
    def dead(self) -> int:
        """How many died."""
        return sum(self.counts.get(result, 0) for result in DEAD)


@dataclass(frozen=True)
class Statement:
    """The SQL function of an outcome; `values` names what it takes beside ids and claims."""

    query: str
    values: tuple[str, ...] = ()


STATEMENTS = {
    Outcome.SUCCESS: Statement("SELECT messages.complete(%(ids)s::bigint[], %(claims)s::bigint[])"),
    Outcome.RETRY: Statement(
        "SELECT messages.retry(%(ids)s::bigint[], %(claims)s::bigint[], %(reasons)s::text[], %(afters)s::interval[])",
        ("reasons", "afters"),
    ),
    Outcome.REJECT: Statement(
        "SELECT messages.reject(%(ids)s::bigint[], %(claims)s::bigint[], %(reasons)s::text[])", ("reasons",)
    ),
    Outcome.FAIL: Statement(
        "SELECT messages.fail(%(ids)s::bigint[], %(claims)s::bigint[], %(reasons)s::text[])", ("reasons",)
    ),
    Outcome.DEFER: Statement(
        "SELECT messages.defer(%(ids)s::bigint[], %(claims)s::bigint[], %(afters)s::interval[])", ("afters",)
    ),
    Outcome.RELEASE: Statement(
        "SELECT messages.release(%(ids)s::bigint[], %(claims)s::bigint[], array_fill(true, ARRAY[cardinality(%(ids)s::bigint[])]))"
    ),
}
ENDED = "SELECT r.result, count(*) FROM messages.results(%(ids)s::bigint[], %(claims)s::bigint[]) AS r GROUP BY 1"
NEEDED = ("id", "claim_id")
OPTIONAL = {"outcome": "string", "reason": "string", "after": "string"}
COUNTED = "became string, settled long"
LOST = "lost"


def settle(outcomes: DataFrame, dsn: str | None = None) -> SettleResult:
    """Settle the messages of a DataFrame, each partition by a connection of its own.

    A message that was settled leaves the claimed DataFrame: what is read of that again does not have it. So this comes last, or what is
    needed afterwards is persisted before.

    Args:
        outcomes: columns id and claim_id as the stream has them; `outcome`, one of success, retry, reject, fail, defer and release
            (NULL, or no such column: success); `reason` of the first three that do not succeed; `after`, of retry and defer: when to
            try again, as an interval, seconds, or text like `5m` (NULL: as the topic's backoff says; of defer at once).
        dsn: as the option of the format.

    Returns:
        How many ended how, as the database says.

    Raises:
        ConfigError: a column is missing, or holds what it cannot.
        DatabaseUnreachable: with the reason.
    """
    from pyspark.errors import PySparkException  # noqa: PLC0415 - only drivers need it

    from pyspark_pgrouse.executors import pgrouse_error  # noqa: PLC0415

    frame = outcomes.select(*_columns(outcomes))
    try:
        rows = frame.mapInArrow(partial(_settle, dsn), COUNTED).collect()
    except PySparkException as error:
        raise pgrouse_error(str(error)) or error from None
    return sum_results((row.became, row.settled) for row in rows)


def sum_results(counted: Iterable[tuple[str, int]]) -> SettleResult:
    """Add up what `settle_rows` counted."""
    rows = list(counted)
    return SettleResult.of(
        ((became, count) for became, count in rows if became != LOST),
        sum(count for became, count in rows if became == LOST),
    )


def _columns(outcomes: DataFrame) -> list[Column]:
    from pyspark.sql import functions as f  # noqa: PLC0415 - only drivers need it

    if missing := [name for name in NEEDED if name not in outcomes.columns]:
        raise ConfigError(
            f"outcomes have no column {' and '.join(missing)}: keep {' and '.join(NEEDED)} of the claimed rows"
        )
    return [
        *(f.col(name) for name in NEEDED),
        *(
            f.col(name) if name in outcomes.columns else f.lit(None).cast(type_).alias(name)
            for name, type_ in OPTIONAL.items()
        ),
    ]


def _settle(dsn: str | None, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Settle a partition, on an executor."""
    import pyarrow as pa  # noqa: PLC0415

    from pyspark_pgrouse import connection  # noqa: PLC0415

    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return
    with connection.connect(dsn) as conn:
        for batch in (first, *filled):
            counted = settle_rows(conn, [tuple(row.values()) for row in batch.to_pylist()])
            yield pa.RecordBatch.from_pylist(
                [{"became": became, "settled": count} for became, count in counted],
                pa.schema([("became", pa.string()), ("settled", pa.int64())]),
            )


Row = tuple[int, int, str | None, timedelta | None]


def settle_rows(conn: psycopg.Connection[Any], rows: Iterable[tuple[Any, ...]]) -> list[tuple[str, int]]:
    """Settle rows of id, claim_id, outcome, reason and after.

    Returns:
        What became of how many, as the keys of `SettleResult.counts` say it, or `lost`. Something may come more than once.

    Raises:
        ConfigError: an outcome or a delay is none; nothing was settled.
    """
    by_outcome: dict[Outcome, list[Row]] = {}
    # All are looked at before the first is settled: what is wrong with one is wrong with the function.
    for id_, claim, outcome, reason, after in rows:
        by_outcome.setdefault(parse_outcome(outcome), []).append((id_, claim, reason, parse_delay(after)))
    return [counted for outcome, some in by_outcome.items() for counted in _settle_one(conn, outcome, some)]


def _settle_one(conn: psycopg.Connection[Any], outcome: Outcome, rows: Sequence[Row]) -> list[tuple[str, int]]:
    statement = STATEMENTS[outcome]
    refs = ClaimRefs.of((id_, claim) for id_, claim, *_ in rows)
    values: dict[str, Any] = {"ids": refs.ids, "claims": refs.claims}
    if "reasons" in statement.values:
        values["reasons"] = [
            to_storable_text(reason or f"{outcome} by the batch's function") for _, _, reason, _ in rows
        ]
    if "afters" in statement.values:
        values["afters"] = [after for *_, after in rows]
    row = conn.execute(statement.query.encode(), values).fetchone()
    lost = set(row[0]) if row else set()
    settled = [(id_, claim) for id_, claim, *_ in rows if id_ not in lost]
    return [(LOST, len(lost)), *_became(conn, outcome, settled)]


def _became(
    conn: psycopg.Connection[Any], outcome: Outcome, settled: Sequence[tuple[int, int]]
) -> list[tuple[str, int]]:
    """Return what became of those that were settled: whether one waits again or has ended is decided by its policy and its key."""
    if outcome in RESULTS:
        return [(RESULTS[outcome], len(settled))]
    refs = ClaimRefs.of(settled)
    ended = conn.execute(ENDED.encode(), {"ids": refs.ids, "claims": refs.claims}).fetchall() if settled else []
    return [*ended, (outcome.value, len(settled) - sum(count for _, count in ended))]


def parse_outcome(text: str | None) -> Outcome:
    """Return the outcome of a name; NULL is success.

    Raises:
        ConfigError: there is none of this name.
    """
    try:
        return Outcome(text or Outcome.SUCCESS)
    except ValueError:
        raise ConfigError(f"outcome must be one of {', '.join(Outcome)}, found {text!r}") from None


def parse_delay(value: Any) -> timedelta | None:
    """Return a delay that was given as an interval, as seconds or as text.

    Raises:
        ConfigError: it is none.
    """
    if value is None:
        return None
    try:
        return duration.parse(value)
    except ValueError as error:
        raise ConfigError(f"after: {error}") from None
