"""How each message of a batch ended, and the results after it was settled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from pgrouse.client.call import run
from pgrouse.client.calls.processing.run import results
from pgrouse.client.processing.settlement import SettleKind, settle_call
from pgrouse.config import duration
from pgrouse.errors import ConfigError, InvalidMessage
from pgrouse.values import jsonb
from pgrouse.values.error_line import to_storable_text
from pyspark_pgrouse.claim.claim_client import SETTLE_ROWS, ClaimClient
from pyspark_pgrouse.claim.claim_ref import ClaimRef, unzip

if TYPE_CHECKING:
    import psycopg

    from pyspark_pgrouse.claim.reconnecting_connection import ReconnectingConnection


@dataclass(frozen=True, slots=True)
class AttemptOutcome:
    """How one attempt ended.

    Attributes:
        kind: the kind of outcome.
        error: for retry, expire, reject and fail; for defer the reason of the pause.
        after: for retry and defer: when to try again.
        until: for defer, instead of `after`.
        state: for retry and defer: the JSON that the next attempt gets.
        output: for complete, JSON.
        ran: for release: whether processing of the message had begun; its run then stays counted.
        pause: for defer: `topic` or `channel` pauses that of the message until it comes back.
    """

    kind: SettleKind = SettleKind.COMPLETE
    error: str | None = None
    after: timedelta | None = None
    until: datetime | None = None
    state: str | None = None
    output: str | None = None
    ran: bool = True
    pause: str | None = None

    @classmethod
    def parse(cls, row: Mapping[str, Any]) -> AttemptOutcome:
        """Return the outcome in a row that has some of the columns of OPTIONAL.

        Raises:
            ConfigError: a column has a value that is not allowed.
        """
        return cls(
            parse_kind(row.get("outcome")),
            row.get("reason"),
            parse_delay(row.get("after")),
            parse_time(row.get("until")),
            parse_json("state", row.get("state")),
            parse_json("output", row.get("output")),
            row.get("ran") is not False,
            parse_pause(row.get("pause")),
        )

    def value(self, field: str) -> Any:
        """Return its value for a field of a Settlement."""
        if field in ("error", "reason"):
            return to_storable_text(self.error or f"{self.kind} by the batch's function")
        return getattr(self, field)


SUCCEEDED = AttemptOutcome()
# A message, its claim, and how the attempt ended.
Row = tuple[int, int, AttemptOutcome]
# The results of kinds for which the database has no choice.
RESULTS = {SettleKind.COMPLETE: "success", SettleKind.REJECT: "rejected", SettleKind.FAIL: "failed"}
# What a function on Spark returns: no message of a batch waits for an event.
KINDS = tuple(kind for kind in SettleKind if kind is not SettleKind.WAIT)
# The kind under which a message that waits again is counted.
WAITING = {SettleKind.EXPIRE: SettleKind.RETRY}
DEAD = ("rejected", "failed", "lock_expired")
COUNTS = (
    "success",
    *DEAD,
    "cancelled",
    SettleKind.RETRY.value,
    SettleKind.DEFER.value,
    SettleKind.RELEASE.value,
)


@dataclass(frozen=True)
class SettledCounts:
    """The results of a batch, as the database reports them.

    Attributes:
        counts: how many messages ended how: `success`, `rejected`, `failed`, `lock_expired` and `cancelled` as in the
            archive;
        `retry`, `defer` and `release` are messages that wait again. A retry without an attempt left is `failed`.
        Results that do not occur are missing.
        lost: how many were no longer held: their lock had expired, or they were cancelled. Nothing was changed for
            them.
    """

    counts: dict[str, int] = field(default_factory=dict)
    lost: int = 0

    @classmethod
    def of(cls, counted: Iterable[tuple[str, int]], lost: int) -> SettledCounts:
        """Add up counts from several places."""
        counts: Counter[str] = Counter()
        for became, count in counted:
            counts[became] += count
        return cls({became: count for became, count in counts.items() if count}, lost)

    def __add__(self, other: SettledCounts) -> SettledCounts:
        return SettledCounts.of([*self.counts.items(), *other.counts.items()], self.lost + other.lost)

    @property
    def total(self) -> int:
        """How many messages there were, the lost ones included."""
        return sum(self.counts.values()) + self.lost

    @property
    def dead(self) -> int:
        """How many messages died."""
        return sum(self.counts.get(result, 0) for result in DEAD)


# The columns that a function may return in addition to id.
OPTIONAL = ("outcome", "reason", "after", "until", "state", "output", "ran", "pause")
LOST = "lost"


def sum_results(counted: Iterable[tuple[str, int]]) -> SettledCounts:
    """Add up the counts of `settle_rows`."""
    rows = list(counted)
    return SettledCounts.of(
        ((became, count) for became, count in rows if became != LOST),
        sum(count for became, count in rows if became == LOST),
    )


def settle_rows(conn: psycopg.Connection[Any], rows: Iterable[Row]) -> list[tuple[str, int]]:
    """Settle messages.

    Returns:
        The results and how many messages have each, with the keys of `SettledCounts.counts`, or `lost`. A key may occur
        more than once.
    """
    by_kind: dict[SettleKind, list[Row]] = {}
    for row in rows:
        by_kind.setdefault(row[2].kind, []).append(row)
    return [counted for kind, some in by_kind.items() for counted in _settle_kind(conn, kind, some)]


def settle_in_parts(claim_connection: ReconnectingConnection, rows: Sequence[Row]) -> list[tuple[str, int]]:
    """Settle messages, SETTLE_ROWS per transaction; return the same as `settle_rows`.

    Raises:
        DatabaseUnreachable: the server went away, and did not come back in time.
    """
    parts = (rows[at : at + SETTLE_ROWS] for at in range(0, len(rows), SETTLE_ROWS))
    return [counted for part in parts for counted in claim_connection.run(partial(_settle_part, part))]


def _settle_part(part: Sequence[Row], client: ClaimClient) -> list[tuple[str, int]]:
    return settle_rows(client.conn, part)


def _settle_kind(conn: psycopg.Connection[Any], kind: SettleKind, rows: Sequence[Row]) -> list[tuple[str, int]]:
    ids, claim_ids = [id_ for id_, *_ in rows], [claim_id for _, claim_id, _ in rows]
    call = settle_call(kind, ids, claim_ids, lambda field: [outcome.value(field) for *_, outcome in rows])
    lost_ids = run(conn, call)
    lost = frozenset(lost_ids)
    settled = [(id_, claim_id) for id_, claim_id, _ in rows if id_ not in lost]
    return [(LOST, len(lost)), *_became(conn, kind, settled)]


def _became(conn: psycopg.Connection[Any], kind: SettleKind, settled: Sequence[ClaimRef]) -> list[tuple[str, int]]:
    """Return the results of settled messages.

    Their policy and their key decide whether a message waits again or has ended.
    """
    if kind in RESULTS:
        return [(RESULTS[kind], len(settled))]
    ended = Counter(each.result for each in run(conn, results(*unzip(settled)))) if settled else Counter[str]()
    return [*ended.items(), (WAITING.get(kind, kind).value, len(settled) - ended.total())]


def parse_kind(text: str | None) -> SettleKind:
    """Return the kind with this name; NULL means complete.

    Raises:
        ConfigError: there is no kind with this name.
    """
    if not text:
        return SettleKind.COMPLETE
    if text not in KINDS:
        raise ConfigError(f"outcome must be one of {', '.join(KINDS)}, found {text!r}")
    return SettleKind(text)


def parse_pause(text: str | None) -> str | None:
    """Return what is to be paused; NULL: nothing.

    Raises:
        ConfigError: it is neither topic nor channel.
    """
    if text not in (None, "topic", "channel"):
        raise ConfigError(f"pause must be topic or channel, found {text!r}")
    return text


def parse_delay(value: Any) -> timedelta | None:
    """Return a delay that was given as an interval, as seconds or as text.

    Raises:
        ConfigError: it is not a delay.
    """
    if value is None:
        return None
    try:
        return duration.parse(value)
    except ValueError as error:
        raise ConfigError(f"after: {error}") from None


def parse_time(value: datetime | None) -> datetime | None:
    """Return a time, after a check.

    Raises:
        ConfigError: it has no time zone.
    """
    if value is not None and value.tzinfo is None:
        raise ConfigError(f"until: {value} has no time zone: cast it to timestamp")
    return value


def parse_json(column: str, text: str | None) -> str | None:
    """Return JSON that was given as text, after a check.

    Raises:
        ConfigError: it is not JSON, or the database cannot store it.
    """
    if text is None:
        return None
    try:
        # Valid JSON may still have something that jsonb refuses: a NUL in a string.
        jsonb.encode(jsonb.decode(text, column), column)
    except InvalidMessage as error:
        raise ConfigError(f"{column}: {error}") from None
    return text
