"""What is done to many messages at once: which they are, how many, and one bounded batch after the other."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from psycopg.types.json import Jsonb

from pgrouse.web import search
from pgrouse.web.caller import Caller
from pgrouse.web.database_pool import Connection, Row
from pgrouse.web.problem import Problem

# So many are done in one transaction.
BATCH = 500
LONGEST_NUMBER = 19
# What all of one batch may take: five hundred large messages are some seconds of work.
BATCH_TIME = timedelta(seconds=30)
# A preview counts no further, and runs a search that gives up before that so many times.
BOUND = 5000
MOST_LOOKS = 4

TOPICS = b"SELECT s.id, s.topic, s.state FROM messages.state AS s WHERE s.id = ANY (%(ids)s) ORDER BY s.id"
# The row without a topic is the end of the page: its place is where the search goes on.
COUNT = (
    b"""
  SELECT f.topic, f.state, count(f.id) AS count, max(f.place::text)::jsonb AS place
  FROM ("""
    + search.FIND
    + b""") AS f GROUP BY 1, 2"""
)
# By the clock that says when messages were published and ended; ids are given out in their order.
NOW = b"""
  SELECT clock_timestamp() AS at, greatest(
    (SELECT m.id FROM messages.message AS m ORDER BY m.id DESC LIMIT 1),
    (SELECT a.id FROM messages.message_archive AS a ORDER BY a.id DESC LIMIT 1), 0) AS highest"""


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
        at_least: whether there may be more: the search was given up before its end.
        groups: how many of which topic and state, the most first.
    """

    count: int
    at_least: bool
    groups: list[tuple[str, str, int]]


@dataclass(frozen=True)
class Consent:
    """To what somebody agreed when he confirmed what a preview said; it goes with every batch.

    Attributes:
        asof: nothing that was published, or ended, later.
        highest: nothing with a higher id.
        most: no more than so many; None: all that fit, since the preview said "at least".
    """

    asof: datetime
    highest: int
    most: int | None

    @classmethod
    def of(cls, form: Mapping[str, Any]) -> Consent:
        """Read what the form of a preview brings back.

        Raises:
            Problem: 422, it says nothing of that.
        """
        asof = search.moment(str(form.get("asof") or ""), "asof")
        highest, most = _number(form.get("highest")), _number(form.get("most"))
        if asof is None or highest is None or (most is None and form.get("at_least") != "1"):
            raise Problem(422, "it is not known what was agreed to: look at the preview first", "no_preview")
        return cls(asof, highest, most)

    @classmethod
    def selected(cls, count: int) -> Consent:
        """Return what goes with messages that were selected one by one."""
        return cls(datetime.max.replace(tzinfo=UTC), 0, count)

    @property
    def fields(self) -> dict[str, str]:
        """What the form has to bring back."""
        most = {"at_least": "1"} if self.most is None else {"most": str(self.most)}
        return {"asof": self.asof.isoformat(), "highest": str(self.highest), **most}

    def left(self, so_far: Counter[str]) -> int:
        """Return how many the next batch may have."""
        return BATCH if self.most is None else max(0, min(BATCH, self.most - sum(so_far.values())))

    def narrow(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return a search for no more than that."""
        return {**arguments, "until": min(filter(None, (arguments["until"], self.asof)))}


async def now(conn: Connection) -> Consent:
    """Return what there is now, before anything is counted."""
    (row,) = await (await conn.execute(NOW)).fetchall()
    return Consent(row["at"], row["highest"], None)


def _number(text: Any) -> int | None:
    digits = str(text or "")
    is_number = digits.isascii() and digits.isdecimal() and len(digits) < LONGEST_NUMBER
    return int(digits) if is_number else None


def narrowed(arguments: Mapping[str, Any], act: Act) -> dict[str, Any]:
    """Return a search for those of its messages that can be acted on; with no state left it finds none."""
    wanted = arguments["states"]
    states = [state for state in act.states if wanted is None or state in wanted]
    return {**arguments, "states": states}


async def preview(conn: Connection, arguments: Mapping[str, Any]) -> Preview:
    """Count what a search finds, no further than `BOUND`."""
    if not arguments["states"]:
        return Preview(0, False, [])
    groups: Counter[tuple[str, str]] = Counter()
    place = None
    for _ in range(MOST_LOOKS):
        values = {**arguments, "limit": BOUND - groups.total(), "after": None if place is None else Jsonb(place)}
        rows = await (await conn.execute(COUNT, values)).fetchall()
        groups.update({(row["topic"], row["state"]): row["count"] for row in rows if row["topic"] is not None})
        place = next((row["place"] for row in rows if row["topic"] is None), None)
        if place is None or groups.total() >= BOUND:
            break
    by_size = _by_size((topic, state, n) for (topic, state), n in groups.items())
    return Preview(groups.total(), place is not None, by_size)


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
    except (ValueError, TypeError, AttributeError, RecursionError, OverflowError):
        raise Problem(422, "so_far is not what the batch before said: begin again", "invalid_progress") from None


def delay(so_far: Counter[str], rate: float | None) -> str:
    """Return how long the first of the next batch waits: those before it come first."""
    return f"{so_far['done'] / rate:.6f} seconds" if rate else "0"
