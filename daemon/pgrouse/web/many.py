"""What is done to many messages at once: which they are, how many, and one bounded batch after the other."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

from pgrouse.web import search
from pgrouse.web.caller import Caller
from pgrouse.web.database import Connection, Row
from pgrouse.web.problem import Problem

# So many are done in one transaction.
BATCH = 500
# What all of one batch may take: five hundred large messages are some seconds of work.
BATCH_TIME = timedelta(seconds=30)
# A preview counts no further.
BOUND = 5000

TOPICS = b"SELECT s.id, s.topic, s.state FROM messages.state AS s WHERE s.id = ANY (%(ids)s) ORDER BY s.id"
COUNT = (
    b"SELECT f.topic, f.state, count(*) AS count FROM (" + search.FIND + b") AS f WHERE f.id IS NOT NULL GROUP BY 1, 2"
)


class Act(StrEnum):
    """What can be done to many."""

    RETRY = "retry"
    CANCEL = "cancel"
    REDRIVE = "redrive"

    @property
    def states(self) -> tuple[str, ...]:
        """The states of messages that it can be done to."""
        return {
            Act.RETRY: ("delayed", "retrying"),
            Act.CANCEL: search.LIVE,
            Act.REDRIVE: search.DEAD,
        }[self]

    @property
    def label(self) -> str:
        """What a button says."""
        return {Act.RETRY: "Retry now", Act.CANCEL: "Cancel", Act.REDRIVE: "Redrive"}[self]

    @property
    def done(self) -> str:
        """What was done, of so many messages."""
        return {Act.RETRY: "due now", Act.CANCEL: "cancelled", Act.REDRIVE: "put back"}[self]


# What each does to a list of ids; one row per message, outcome NULL = it was done.
STATEMENTS = {
    Act.RETRY: b"SELECT r.id, NULL AS outcome FROM unnest(messages.retry_now(%(ids)s)) AS r (id)",
    Act.CANCEL: b"SELECT r.id, NULL AS outcome FROM unnest(messages.cancel(%(ids)s, %(reason)s)) AS r (id)",
    Act.REDRIVE: b"""
      SELECT r.archived_id AS id, CASE WHEN r.outcome NOT IN ('redriven', 'keyless') THEN r.outcome END AS outcome
      FROM messages.redrive(%(ids)s, %(rate)s, %(delay)s, %(force)s) AS r""",
}


@dataclass(frozen=True)
class Preview:
    """What would be done.

    Attributes:
        count: to how many.
        at_least: whether there may be more.
        groups: how many of which topic and state, the most first.
    """

    count: int
    at_least: bool
    groups: list[tuple[str, str, int]]


def narrowed(arguments: Mapping[str, Any], act: Act) -> dict[str, Any]:
    """Return a search for those of its messages that can be acted on; with no state left it finds none."""
    wanted = arguments["states"]
    states = [state for state in act.states if wanted is None or state in wanted]
    return {**arguments, "states": states}


async def preview(conn: Connection, arguments: Mapping[str, Any]) -> Preview:
    """Count what a search finds, no further than `BOUND`."""
    if not arguments["states"]:
        return Preview(0, False, [])
    values = {**arguments, "limit": BOUND}
    rows = await (await conn.execute(COUNT, values)).fetchall()
    found = sum(row["count"] for row in rows)
    place = None if found >= BOUND else (await search.find(conn, arguments, limit=1)).place
    # A search that stopped before it found so many has looked at its own bound.
    at_least = found >= BOUND or (place is not None and found == 0)
    return Preview(found, at_least, _by_size((row["topic"], row["state"], row["count"]) for row in rows))


async def chosen(conn: Connection, caller: Caller, act: Act, ids: list[int]) -> list[Row]:
    """Return id, topic and state of those of the messages that can be acted on, and that the caller sees."""
    rows = await (await conn.execute(TOPICS, {"ids": ids})).fetchall()
    return [row for row in rows if row["state"] in act.states and caller.sees(row["topic"])]


def preview_of(rows: list[Row]) -> Preview:
    """Return what would be done to chosen messages."""
    groups = Counter((row["topic"], row["state"]) for row in rows)
    return Preview(len(rows), False, _by_size((topic, state, n) for (topic, state), n in groups.items()))


def _by_size(groups: Iterable[tuple[str, str, int]]) -> list[tuple[str, str, int]]:
    return sorted(groups, key=lambda group: (-group[2], group))


async def do(conn: Connection, act: Act, ids: list[int], **how: Any) -> Counter[str]:
    """Act on messages; return how many it was done to ("done"), and of the others how many for which reason."""
    if not ids:
        return Counter()
    values = {"ids": ids, "reason": None, "rate": None, "delay": "0", "force": False, **how}
    rows = await (await conn.execute(STATEMENTS[act], values)).fetchall()
    outcomes = Counter(row["outcome"] or "done" for row in rows)
    if missed := len(ids) - sum(outcomes.values()):
        outcomes["gone"] = missed
    return outcomes


def counted(text: str) -> Counter[str]:
    """Read how many of which outcome there were so far, as the form of the next batch brings it back.

    Raises:
        Problem: 422, it is no such thing.
    """
    try:
        given = json.loads(text[:1000] or "{}")
        return Counter({str(name)[:50]: min(max(0, int(n)), 10**9) for name, n in given.items()})
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise Problem(422, "so_far is not what the batch before said: begin again", "invalid_progress") from None


def delay(so_far: Counter[str], rate: float | None) -> str:
    """Return how long the first of the next batch waits: those before it come first."""
    return f"{so_far['done'] / rate:.6f} seconds" if rate else "0"
