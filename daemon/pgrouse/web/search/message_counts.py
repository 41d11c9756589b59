"""How many messages there are in each state, topic and worker, as the list of messages shows it next to its filters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pgrouse.client.call import run_async
from pgrouse.client.calls.monitoring.stats import COUNT_BOUND, TOPIC_LIMIT, stats
from pgrouse.client.message_state import WAITING
from pgrouse.client.queries.worker import count_held, find_workers
from pgrouse.web.access.caller import Caller
from pgrouse.web.access.database_pool import Connection, Row, read_rows
from pgrouse.web.search.search import Search


@dataclass(frozen=True)
class VisibleTopics:
    """What the topics contain that a caller may see.

    Attributes:
        rows: one per topic, by name: how many messages are ready, delayed, running and died within a day.
        are_all: false: there may be more topics, and these matter most.
    """

    rows: list[Row]
    are_all: bool


async def read_topic_counts(conn: Connection, caller: Caller, begin: str = "") -> VisibleTopics:
    """Read the topics that the caller may see, whose names begin so."""
    rows = await read_rows(conn, stats(topics=_beginnings(caller.topics, begin)))
    return VisibleTopics([row for row in rows if caller.sees(row["topic"])], len(rows) < TOPIC_LIMIT)


async def read_counts_of(conn: Connection, caller: Caller, topic: str) -> Row | None:
    """Read one topic; None: the caller may not see it, or there is no such topic."""
    rows = await read_rows(conn, stats(topics=[topic])) if caller.sees(topic) else []
    return next((row for row in rows if row["topic"] == topic), None)


def _beginnings(patterns: Sequence[str], begin: str) -> list[str]:
    """Return the patterns of topics that fit some pattern and begin so."""
    longer = [each for each in patterns if each.startswith(begin)]
    is_wanted = any(each.endswith("*") and begin.startswith(each.rstrip("*")) for each in patterns)
    return [*longer, f"{begin}*"] if is_wanted else longer


MAX_FACETS = 12
# Which counts of a topic each state of the list adds up; those that are not here are not counted.
COLUMNS = {
    "": ("ready", "delayed", "running"),
    "live": ("ready", "delayed", "running"),
    "ready": ("ready",),
    "scheduled": ("delayed",),
    "running": ("running",),
    "dead": ("dead_last_day",),
}
# Messages that are due later are counted together.
LATER = {*WAITING} - {"ready"}
COLUMN_OF_STATE = {"ready": "ready", **dict.fromkeys(LATER, "delayed"), "running": "running"}
ESTIMATED = ("ready", "delayed")
MAX_WORKERS = 200


@dataclass(frozen=True)
class Count:
    """A number of messages.

    Attributes:
        value: the number.
        is_estimate: whether it is one.
    """

    value: int
    is_estimate: bool = False


@dataclass(frozen=True)
class MessageCounts:
    """What stands next to the filters.

    Attributes:
        states: by the state of the list; empty if other filters than the topic narrow it, which no count follows.
        topics: those with the most messages in the chosen state.
        workers: those that run the most.
        known_topics: the names of all, to choose from.
        known_workers: so too.
    """

    states: dict[str, Count]
    topics: dict[str, Count]
    workers: dict[str, Count]
    known_topics: list[str]
    known_workers: list[str]


async def read_counts(conn: Connection, caller: Caller, wanted: Search) -> MessageCounts:
    """Read what is counted for a search."""
    visible = await read_topic_counts(conn, caller)
    rows, chosen = visible.rows, await _read_chosen(conn, caller, wanted, visible)
    is_narrowed = bool(wanted.filters().keys() - {"state", "topic"})
    known = await run_async(conn, find_workers(MAX_WORKERS)) if caller.sees_all else []
    return MessageCounts(
        states={} if is_narrowed else {state: _total(chosen, columns) for state, columns in COLUMNS.items() if state},
        topics={} if is_narrowed else _topics(rows, wanted.state),
        workers=await _workers(conn, caller, wanted) if wanted.state in ("", "live", "running") else {},
        known_topics=[row["topic"] for row in rows],
        known_workers=[each.name for each in known],
    )


async def estimate_waiting(
    conn: Connection, caller: Caller, wanted: Search, states: Sequence[str], at_least: int
) -> Count | None:
    """Estimate how many live messages in these states a search finds; None if that cannot be told without searching."""
    columns = {COLUMN_OF_STATE.get(state, "") for state in states}
    is_part = LATER & set(states) not in (set(), LATER)
    if not states or "" in columns or is_part or wanted.filters().keys() - {"state", "topic"}:
        return None
    visible = await read_topic_counts(conn, caller)
    found = _sum((await _read_chosen(conn, caller, wanted, visible)).rows, sorted(columns))
    return Count(max(found.value, at_least), is_estimate=True)


async def _read_chosen(conn: Connection, caller: Caller, wanted: Search, visible: VisibleTopics) -> VisibleTopics:
    """Return the topics that a search covers."""
    if not wanted.topic:
        return visible
    rows = [row for row in visible.rows if row["topic"] == wanted.topic]
    if not rows and not visible.are_all:
        rows = [row for row in [await read_counts_of(conn, caller, wanted.topic)] if row is not None]
    return VisibleTopics(rows, are_all=True)


def _sum(rows: Sequence[Row], columns: Sequence[str]) -> Count:
    is_estimate = any(row[name] >= COUNT_BOUND for row in rows for name in columns if name in ESTIMATED)
    return Count(sum(row[name] for row in rows for name in columns), is_estimate)


def _total(topics: VisibleTopics, columns: Sequence[str]) -> Count:
    """Return the sum of some topics; what is not listed can only be estimated."""
    found = _sum(topics.rows, columns)
    return found if topics.are_all else Count(found.value, is_estimate=True)


def _topics(rows: Sequence[Row], state: str) -> dict[str, Count]:
    counts = {row["topic"]: _sum([row], COLUMNS[state]) for row in rows} if state in COLUMNS else {}
    return _most(counts)


async def _workers(conn: Connection, caller: Caller, wanted: Search) -> dict[str, Count]:
    counts: dict[str, Count] = {}
    for each in await run_async(conn, count_held()):
        if caller.sees(each.topic) and wanted.topic in ("", each.topic):
            counts[each.worker] = Count(counts.get(each.worker, Count(0)).value + each.count)
    return _most(counts)


def _most(counts: dict[str, Count]) -> dict[str, Count]:
    by_number = sorted(counts.items(), key=lambda item: (-item[1].value, item[0]))
    return {name: count for name, count in by_number[:MAX_FACETS] if count.value}
