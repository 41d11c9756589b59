"""The charts next to a list of messages: they follow those of its filters by which the workers measure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pgrouse.client.calls.monitoring.stats import throughput
from pgrouse.client.message_state import DEAD
from pgrouse.web.access.caller import Caller
from pgrouse.web.access.database_pool import Connection, Row, read_rows
from pgrouse.web.charts.result_charts import count_results, read_bars, result_charts
from pgrouse.web.http.problem import Problem
from pgrouse.web.page.formatting import duration
from pgrouse.web.search.search import Search, parse_time

BARS = 60
DEFAULT_PERIOD = timedelta(hours=1)
# A week of a thousand topics takes seconds to read, and the list would wait for it.
MIN_PERIOD, MAX_PERIOD = timedelta(minutes=5), timedelta(days=1)
# Which results of attempts are shown for a state of the list. The others are states of messages that no attempt has
# ended.
RESULTS_OF_STATE = {
    "success": ("success",),
    "retrying": ("retried",),
    "dead": tuple(result for result in DEAD if result != "expired"),
    "failed": ("failed",),
    "rejected": ("rejected",),
    "lock_expired": ("lock_expired",),
}


@dataclass(frozen=True)
class ChartFilters:
    """What the charts of a search show.

    Attributes:
        topic, worker: of this one only, never both: the workers do not measure that.
        period: the time until now.
        until: show nothing later; None = until now.
        results: only these; empty = all.
        ignored: the filters that the charts do not follow.
    """

    topic: str | None
    worker: str | None
    period: timedelta
    until: datetime | None
    results: tuple[str, ...]
    ignored: tuple[str, ...]

    @classmethod
    def of(cls, wanted: Search, caller: Caller) -> ChartFilters:
        """Return what the charts of a search show to a caller."""
        by_topic = bool(wanted.topic)
        # A worker may work topics that the caller may not see.
        by_worker = bool(wanted.worker) and not by_topic and caller.sees_all
        results = RESULTS_OF_STATE.get(wanted.state, ())
        is_followed = {"topic": by_topic, "worker": by_worker, "state": bool(results), "since": True, "until": True}
        return cls(
            topic=wanted.topic if by_topic else None,
            worker=wanted.worker if by_worker else None,
            period=_period(_time(wanted.since, "since")),
            until=_time(wanted.until, "until"),
            results=results,
            ignored=tuple(name for name in wanted.filters() if not is_followed.get(name)),
        )

    @property
    def time(self) -> str:
        """How long the period is, in words."""
        return "hour" if self.period == DEFAULT_PERIOD else duration(self.period)

    @property
    def caption(self) -> str:
        """What the charts show, in a sentence, and which filters they do not follow."""
        of = f" in {self.topic}" if self.topic else f" by {self.worker}" if self.worker else ""
        shown = f"How attempts{of} ended, in the last {self.time}."
        return f"{shown} Not narrowed by {', '.join(self.ignored)}." if self.ignored else shown


async def read_message_charts(conn: Connection, caller: Caller, wanted: Search) -> dict[str, Any]:
    """Read the charts of a search, their caption, and how many attempts ended by result."""
    filters = ChartFilters.of(wanted, caller)
    bars = [
        bar for bar in await _read_bars(conn, caller, filters) if filters.until is None or bar["at"] < filters.until
    ]
    return {
        "charts": result_charts(bars, filters.results),
        "chart_caption": filters.caption,
        "chart_time": filters.time,
        "ended": count_results(bars),
    }


async def _read_bars(conn: Connection, caller: Caller, filters: ChartFilters) -> list[Row]:
    if filters.topic is None and filters.worker is None:
        return await read_bars(conn, caller, filters.period, BARS)
    if filters.topic is not None and not caller.sees(filters.topic):
        return []
    return await read_rows(conn, throughput(filters.period, filters.topic, BARS, filters.worker))


def _time(text: str, name: str) -> datetime | None:
    """Return the time of a filter; None for one that cannot be read, of which the list tells."""
    try:
        return parse_time(text, name)
    except Problem:
        return None


def _period(since: datetime | None) -> timedelta:
    ago = DEFAULT_PERIOD if since is None else datetime.now(UTC) - since
    # Whole minutes, as bars have: a moment more would make all of them longer.
    wanted = timedelta(minutes=round(ago / timedelta(minutes=1)))
    return min(max(wanted, MIN_PERIOD), MAX_PERIOD)
