"""Work of many batches, each in a transaction of its own: it can be interrupted and begun again, and shows how far it is."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from pgrouse.cli.command import Session
from pgrouse.cli.output import plural

if TYPE_CHECKING:
    import psycopg

BATCH = 500
PUT_BACK = ("redriven", "keyless")
WILL_NOT_DO = ("too_often", "too_large", "redriven_before", "not_dead")

# Why a message was not put back, and what to do about it.
STAYED = {
    "superseded": "stayed dead: a newer message with the same key waits (the topic's key_retry is supersede)",
    "too_often": "stayed dead: put back max_redrives times already; --force does it all the same",
    "too_large": "not put back: too large as text",
    "redriven_before": "not put back: redriven before (`pgrouse dead list --redriven`)",
    "not_dead": "not put back: no dead message (`pgrouse message show ID`)",
    "not_waiting": "not moved: no copy that waits in a .dlq topic (`pgrouse message show ID`)",
    "no_payload": "not replayed: the topic's keep_success did not keep their payloads",
}


class Pace:
    """Spreads what becomes available over time, over all batches.

    Args:
        rate: messages per second; None = all at once.
    """

    def __init__(self, rate: float | None) -> None:
        self.rate = rate
        self._began = time.monotonic()

    def delay(self, done: int) -> timedelta:
        """Return how long the next batch has to wait when so many messages were put back before it."""
        ahead = done / self.rate - (time.monotonic() - self._began) if self.rate else 0.0
        return timedelta(seconds=max(0.0, ahead))


class Progress(Protocol):
    """Where a long run says how far it is."""

    def expect(self, messages: int) -> None:
        """Take note that so many more are to be dealt with."""

    def advance(self, messages: int) -> None:
        """Take note that so many more are dealt with."""


class Silence:
    """No bar: nobody watches."""

    def expect(self, messages: int) -> None:
        """Do nothing."""

    def advance(self, messages: int) -> None:
        """Do nothing."""


def show_progress(title: str, known: int) -> AbstractContextManager[Progress]:
    """Give a bar on a terminal if there is more than one batch to do. known: how many messages there are at least."""
    if known <= BATCH or not sys.stderr.isatty():
        return nullcontext(Silence())
    from pgrouse.cli.progress_bar import Bar  # noqa: PLC0415

    return Bar(title, total=0)


def put_back(
    conn: psycopg.Connection,
    statement: str,
    pages: Iterable[Sequence[int]],
    *,
    rate: float | None,
    force: bool,
) -> Iterator[tuple[int, int | None, str]]:
    """Call a function of the redrive family for all ids, batch by batch; yield id, new message and outcome of each."""
    pace, done, others = Pace(rate), 0, iter(pages)
    first = next(others, [])
    with show_progress("redriving", len(first)) as progress:
        for page in chain([first], others):
            progress.expect(len(page))
            for start in range(0, len(page), BATCH):
                ids = list(page[start : start + BATCH])
                values = {"ids": ids, "rate": rate, "delay": pace.delay(done), "force": force}
                rows = conn.execute(statement.encode(), values).fetchall()
                done += sum(outcome in PUT_BACK for _, _, outcome in rows)
                progress.advance(len(ids))
                yield from rows


def report(session: Session, rows: Iterable[tuple[int, int | None, str]], name: str, *, by_id: bool) -> Counter[str]:
    """Print what became of each message (people are told of each only if they named it: by_id); return how many had which outcome.

    name: what JSON calls the id that was asked for.
    """
    outcomes: Counter[str] = Counter()
    for asked, message_id, outcome in rows:
        outcomes[outcome] += 1
        if session.as_json:
            session.output.record({name: asked, "message_id": message_id, "outcome": outcome})
        elif by_id and outcome in PUT_BACK:
            session.output.say(f"{asked} is back as {message_id}")
        if by_id and outcome in STAYED:
            because = f" [{message_id}]" if message_id else ""
            session.output.problem(f"message {asked} {STAYED[outcome]}{because}")
    tell_stayed(session, Counter(keyless=outcomes["keyless"]) if by_id else outcomes)
    return outcomes


def tell_stayed(session: Session, outcomes: Counter[str]) -> None:
    """Say of how many messages nothing became, and why."""
    if keyless := outcomes["keyless"]:
        session.output.note(f"{plural(keyless, 'message')} came back without the key: a newer message has it")
    for outcome, why in STAYED.items():
        if count := outcomes[outcome]:
            session.output.problem(f"{plural(count, 'message')} {why}")
