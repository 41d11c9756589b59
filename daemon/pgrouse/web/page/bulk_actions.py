"""Actions on many messages: select or search, preview, confirm, and run in bounded batches."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Protocol

import psycopg
from fastapi import Request
from starlette.responses import Response

from pgrouse.client.call import Call, Rows, run_async
from pgrouse.client.calls import operate
from pgrouse.client.calls.dead import redrive
from pgrouse.client.calls.monitoring.search import FoundPage
from pgrouse.client.message_state import DEAD, LIVE, WAITING
from pgrouse.client.queries.message import latest_message, topics_of
from pgrouse.client.redrive import MAX_RATE, MIN_RATE, REDRIVEN_OUTCOMES
from pgrouse.web.access.caller import Caller
from pgrouse.web.access.database_pool import Connection, Row, read_rows, writing
from pgrouse.web.http.problem import Problem, database_problem
from pgrouse.web.page.page import render
from pgrouse.web.search import search

# Messages in one transaction.
BATCH = 500
MAX_NUMBER_DIGITS = 19
# The statement timeout of a batch: 500 large messages take some seconds.
BATCH_TIME = timedelta(seconds=30)
# A preview counts at most this many messages, in at most this many searches.
MAX_COUNT = 5000
MAX_SEARCHES = 4


class BulkAction(StrEnum):
    """An action on many messages."""

    RETRY = "retry"
    CANCEL = "cancel"
    REDRIVE = "redrive"
    DELETE = "delete"

    @property
    def states(self) -> tuple[str, ...]:
        """The states in which messages accept it."""
        return {
            BulkAction.RETRY: ("delayed", "retrying"),
            BulkAction.CANCEL: LIVE,
            BulkAction.REDRIVE: DEAD,
            BulkAction.DELETE: WAITING,
        }[self]

    @property
    def label(self) -> str:
        """The text of its button."""
        return {"retry": "Retry now", "cancel": "Cancel", "redrive": "Redrive", "delete": "Delete"}[self]

    @property
    def done(self) -> str:
        """How the changed messages are described: "3 cancelled"."""
        return {"retry": "due now", "cancel": "cancelled", "redrive": "redriven", "delete": "deleted"}[self]

    @property
    def is_destructive(self) -> bool:
        """Whether it ends messages."""
        return self in (BulkAction.CANCEL, BulkAction.DELETE)


# Those that return the ids of what they changed.
OPERATIONS: dict[BulkAction, Callable[..., Call[list[int]]]] = {
    BulkAction.RETRY: operate.retry_now,
    BulkAction.CANCEL: operate.cancel,
    BulkAction.DELETE: operate.delete,
}


@dataclass(frozen=True)
class BulkPreview:
    """What an action would change.

    Attributes:
        count: how many messages.
        at_least: whether there may be more, because the search stopped before its end.
        groups: topic, state and number of messages, largest first.
    """

    count: int
    at_least: bool
    groups: list[tuple[str, str, int]]


@dataclass(frozen=True)
class Confirmation:
    """What the operator confirmed in the preview; sent with every batch.

    Attributes:
        as_of: messages published or ended later are not included.
        max_id: messages with a higher id are not included.
        most: how many messages at most; None: all that match, however many, for which there is a button of its own
            where the preview said "at least".
    """

    as_of: datetime
    max_id: int
    most: int | None

    @classmethod
    def of(cls, form: Mapping[str, Any]) -> Confirmation:
        """Read the confirmation from the form of a preview.

        Raises:
            Problem: 422, the form has no confirmation.
        """
        as_of = search.parse_time(str(form.get("as_of") or ""), "as_of")
        max_id, most = _number(form.get("max_id")), _number(form.get("most"))
        is_all = form.get("all") == "1"
        if as_of is None or max_id is None or (most is None and not is_all):
            raise Problem(422, "the confirmation is missing: open the preview first", "no_preview")
        return cls(as_of, max_id, None if is_all else most)

    @classmethod
    def selected(cls, count: int) -> Confirmation:
        """Return the confirmation of messages that were selected one by one."""
        return cls(datetime.max.replace(tzinfo=UTC), 0, count)

    @property
    def fields(self) -> dict[str, str]:
        """The hidden fields of the form."""
        most = {"all": "1"} if self.most is None else {"most": str(self.most)}
        return {"as_of": self.as_of.isoformat(), "max_id": str(self.max_id), **most}

    def remaining(self, so_far: Counter[str]) -> int:
        """Return the size of the next batch: together they affect no more messages than were confirmed."""
        return BATCH if self.most is None else max(0, min(BATCH, self.most - sum(so_far.values())))

    def narrow(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Limit a search to what was confirmed."""
        return {**arguments, "until": min(filter(None, (arguments["until"], self.as_of)))}


async def confirm_now(conn: Connection) -> Confirmation:
    """Return a confirmation for everything that exists now."""
    (latest,) = await run_async(conn, latest_message())
    return Confirmation(latest.at, latest.max_id, None)


def _number(text: Any) -> int | None:
    digits = str(text or "")
    is_number = digits.isascii() and digits.isdecimal() and len(digits) < MAX_NUMBER_DIGITS
    return int(digits) if is_number else None


def actionable(arguments: Mapping[str, Any], act: BulkAction) -> dict[str, Any]:
    """Limit a search to the states that accept the action; without such a state it finds nothing."""
    wanted = arguments["states"]
    states = [state for state in act.states if wanted is None or state in wanted]
    return {**arguments, "states": states}


async def preview(conn: Connection, arguments: Mapping[str, Any]) -> BulkPreview:
    """Count the messages of a search, up to `MAX_COUNT`."""
    if not arguments["states"]:
        return BulkPreview(0, False, [])
    groups: Counter[tuple[str, str]] = Counter()
    place = None
    for _ in range(MAX_SEARCHES):
        values = {**arguments, "limit": MAX_COUNT - groups.total(), "after": place}
        counted, place = await run_async(conn, _count(search.search_call(values)))
        groups.update(counted)
        if place is None or groups.total() >= MAX_COUNT:
            break
    by_size = _by_size((topic, state, n) for (topic, state), n in groups.items())
    return BulkPreview(groups.total(), place is not None, by_size)


def _count(found: Call[FoundPage]) -> Call[tuple[dict[tuple[str, str], int], Any]]:
    """Return a call that counts what a search finds, by topic and state, on the server.

    It also returns the place where the count continues.
    """
    statement = b"SELECT f.topic, f.state, count(f.id), max(f.place) FROM (" + found.statement + b") AS f GROUP BY 1, 2"
    return Call(statement, found.values, _read_counts)


def _read_counts(rows: Rows) -> tuple[dict[tuple[str, str], int], Any]:
    # The row without a topic ends the page.
    places = [place for topic, _, _, place in rows if topic is None and place is not None]
    counts = {(topic, state): count for topic, state, count, _ in rows if topic is not None}
    return counts, json.loads(places[0]) if places else None


async def selected(conn: Connection, caller: Caller, act: BulkAction, ids: list[int]) -> list[Row]:
    """Return id, topic and state of those selected messages that accept the action and that the caller may see."""
    rows = await read_rows(conn, topics_of(ids))
    return [row for row in rows if row["state"] in act.states and caller.sees(row["topic"])]


def preview_selected(rows: list[Row]) -> BulkPreview:
    """Return the preview of selected messages."""
    groups = Counter((row["topic"], row["state"]) for row in rows)
    return BulkPreview(len(rows), False, _by_size((topic, state, n) for (topic, state), n in groups.items()))


def _by_size(groups: Iterable[tuple[str, str, int]]) -> list[tuple[str, str, int]]:
    return sorted(groups, key=lambda group: (-group[2], group))


async def run(conn: Connection, act: BulkAction, ids: list[int], **how: Any) -> Counter[str]:
    """Run the action on messages; return how many were changed ("done"), and the others by reason.

    Args:
        conn: in a transaction.
        act: what to do.
        ids: with which messages.
        **how: of cancel: reason; of redrive: rate, delay, force.
    """
    if not ids:
        return Counter()
    if act is BulkAction.REDRIVE:
        redriven = await run_async(conn, redrive(ids, **how))
        outcomes = Counter("done" if each.outcome in REDRIVEN_OUTCOMES else each.outcome for each in redriven)
    else:
        changed = await run_async(conn, OPERATIONS[act](ids, **how))
        outcomes = Counter(done=len(changed))
    if missed := len(ids) - sum(outcomes.values()):
        outcomes["gone"] = missed
    return outcomes


class BulkStep(Protocol):
    """One batch of an action that a form asks for."""

    @property
    def so_far(self) -> Counter[str]:
        """The outcomes of all batches before."""

    @property
    def is_done(self) -> bool:
        """Whether no batch follows."""

    @property
    def fields(self) -> dict[str, str]:
        """The hidden fields of its form."""

    async def run(self, conn: Connection) -> BulkStep:
        """Run the action on the messages of this batch; return the next one."""


async def run_step(request: Request, caller: Caller, step: BulkStep, **shown: str) -> Response:
    """Run a batch, and show how far the action is, with a form for the next batch.

    Args:
        request: with the header `HX-Request` the answer is a part of the page.
        caller: who acts, for the audit.
        step: the batch.
        **shown: title; done, as "redriven"; url of the form; back, the address of the list; back_to, its name.
    """
    error = ""
    try:
        async with writing(request, caller, BATCH_TIME) as conn:
            step = await step.run(conn)
    except psycopg.Error as exc:
        # Nothing of this batch was done, and all of those before it: from here the user may try again.
        error = database_problem(exc).detail
    request.app.state.live_updates.notify()
    template = (
        "messages/bulk_action/progress.html" if request.headers.get("hx-request") else "messages/bulk_action/page.html"
    )
    return render(request, template, step=step, error=error, **shown)


def parse_progress(text: str) -> Counter[str]:
    """Read the outcomes so far from the form of the next batch.

    Raises:
        Problem: 422, they are invalid.
    """
    try:
        given = json.loads(text[:1000] or "{}")
        return Counter({str(name)[:50]: min(max(0, int(n)), 10**9) for name, n in given.items()})
    except (ValueError, TypeError, AttributeError, RecursionError, OverflowError):
        raise Problem(422, "so_far is invalid: start again", "invalid_progress") from None


def batch_delay(so_far: Counter[str], rate: float | None) -> timedelta:
    """Return how long the first message of the next batch waits for the batches before it."""
    return timedelta(seconds=so_far["done"] / rate if rate else 0)


def parse_rate(text: str) -> float | None:
    """Read how many a second become available; None: all at once.

    Raises:
        Problem: 422, it is no such number.
    """
    if not text.strip():
        return None
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not MIN_RATE <= rate <= MAX_RATE:  # NaN fails too
        raise Problem(422, f"rate is {text[:50]!r}: use {MIN_RATE} to {MAX_RATE} messages a second", "invalid_rate")
    return rate
