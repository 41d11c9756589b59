"""Bulk operations in batches, each in its own transaction.

They can be interrupted and started again, and show their progress.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from itertools import chain
from typing import Protocol, TypeVar

import click
import psycopg

from pgrouse.client.call import Call, run
from pgrouse.client.calls.dead import Redriven, Requeued
from pgrouse.client.redrive import (
    BATCH,
    MAX_RATE,
    MIN_RATE,
    REDRIVEN_OUTCOMES,
    REFUSED_OUTCOMES,
    SKIP_REASONS,
    RateSpreader,
)
from pgrouse.errors import ExitCode
from pgrouse.terminal.command import CliSession
from pgrouse.terminal.extras import has_rich
from pgrouse.terminal.param_types import DURATION
from pgrouse.values.format import plural

R = TypeVar("R", Redriven, Requeued)

RATE = click.option(
    "--rate",
    type=click.FloatRange(MIN_RATE, MAX_RATE),
    help="How many become available per second. Default: all at once.",
)
DELAY = click.option(
    "--delay", type=DURATION, default="0s", help="When the first message becomes available, like 10m. Default: at once."
)


# Counting the messages that are to be deleted stops here.
BOUND = 10_000
YES = click.option("--yes", is_flag=True, help="Do not ask: for scripts.")


def ask_to_delete(session: CliSession, found: int, what: str, none: str, *, dry_run: bool, yes: bool) -> bool:
    """Ask whether to delete messages, unless `yes` was given; a dry run only says how many there are.

    found: how many were counted, up to BOUND; what: how they are called; none: what to say if there are none.
    """
    if dry_run or not found:
        said = f"would delete {what}: run it again without --dry-run" if found else none
        session.done(said, messages=found, at_least=found >= BOUND)
        return False
    return yes or click.confirm(f"delete {what} for good?", abort=True, err=True)


class ProgressDisplay(Protocol):
    """Shows the progress of a long operation."""

    def expect(self, messages: int) -> None:
        """Add to the total."""

    def advance(self, messages: int) -> None:
        """Add to the finished ones."""


class NoProgress:
    """Shows no progress bar."""

    def expect(self, messages: int) -> None:
        """Do nothing."""

    def advance(self, messages: int) -> None:
        """Do nothing."""


def show_progress(title: str, known: int) -> AbstractContextManager[ProgressDisplay]:
    """Return a progress bar on a terminal if there is more than one batch. known: the least number of messages."""
    if known <= BATCH or not sys.stderr.isatty() or not has_rich():
        return nullcontext(NoProgress())
    from pgrouse.terminal.progress_bar import ProgressBar  # noqa: PLC0415 - extra rich

    return ProgressBar(title, total=0)


def redrive_in_batches(
    conn: psycopg.Connection,
    redrive: Callable[[Sequence[int], float | None, timedelta, bool], Call[list[R]]],
    pages: Iterable[Sequence[int]],
    spreader: RateSpreader,
    *,
    force: bool,
) -> Iterator[R]:
    """Call a function of the redrive family for all ids, batch by batch; yield what became of each."""
    done, others = 0, iter(pages)
    first = next(others, [])
    with show_progress("redriving", len(first)) as progress:
        for page in chain([first], others):
            progress.expect(len(page))
            for start in range(0, len(page), BATCH):
                ids = page[start : start + BATCH]
                rows = run(conn, redrive(ids, spreader.rate, spreader.delay(done), force))
                done += sum(each.outcome in REDRIVEN_OUTCOMES for each in rows)
                progress.advance(len(ids))
                yield from sorted(rows, key=asked_id)


def asked_id(row: Redriven | Requeued) -> int:
    """Return the id that was asked for."""
    return row.copy_id if isinstance(row, Requeued) else row.archived_id


def report(session: CliSession, rows: Iterable[Redriven | Requeued], name: str, *, by_id: bool) -> Counter[str]:
    """Print the outcome of each message (as text only if it was named: by_id); return how many had which outcome.

    name: what JSON calls the id that was asked for.
    """
    outcomes: Counter[str] = Counter()
    for row in rows:
        asked, message_id, outcome = asked_id(row), row.message_id, row.outcome
        outcomes[outcome] += 1
        if session.as_json:
            session.record({name: asked, "message_id": message_id, "outcome": outcome})
        elif by_id and outcome in REDRIVEN_OUTCOMES:
            session.say(f"{asked} is back as {message_id}")
        if by_id and outcome in SKIP_REASONS:
            because = f" [{message_id}]" if message_id else ""
            session.problem(f"message {asked} {SKIP_REASONS[outcome]}{because}")
    report_skipped(session, Counter(keyless=outcomes["keyless"]) if by_id else outcomes)
    return outcomes


def conclude(
    session: CliSession, rows: Iterable[Redriven | Requeued], name: str, did: str, none: str, *, by_id: bool
) -> int:
    """Print the outcome of each message, and of all together unless they were named; return the exit code.

    did: says what was done, `{}` stands for how many messages; none: what to say if there was none.
    """
    outcomes = report(session, rows, name, by_id=by_id)
    done = sum(outcomes[outcome] for outcome in REDRIVEN_OUTCOMES)
    if not by_id:
        session.say(did.format(plural(done, "message")) if outcomes else none)
    is_refused = by_id and any(outcomes[outcome] for outcome in REFUSED_OUTCOMES)
    return ExitCode.FOUND_A_PROBLEM if is_refused else ExitCode.OK


def report_skipped(session: CliSession, outcomes: Counter[str]) -> None:
    """Report how many messages were skipped, and why."""
    if keyless := outcomes["keyless"]:
        session.note(f"{plural(keyless, 'message')} came back without the key: a newer message has it")
    for outcome, why in SKIP_REASONS.items():
        if count := outcomes[outcome]:
            session.problem(f"{plural(count, 'message')} {why}")
