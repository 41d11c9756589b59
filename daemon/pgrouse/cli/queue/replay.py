"""`pgrouse replay`: publish succeeded messages again."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

import click
import psycopg

from pgrouse.client.call import run
from pgrouse.client.calls import dead as dead_calls
from pgrouse.client.queries.archive import count_replayable
from pgrouse.client.queries.clock import now
from pgrouse.client.redrive import BATCH, RateSpreader
from pgrouse.terminal.bulk import BOUND, DELAY, RATE, YES, report_skipped, show_progress
from pgrouse.terminal.command import READ_TIMEOUT, CliSession, Command
from pgrouse.terminal.param_types import MESSAGE_ID, TIMESTAMP
from pgrouse.values.format import plural


@click.command(cls=Command)
@click.argument("topic")
@click.option(
    "--from",
    "since",
    type=TIMESTAMP,
    required=True,
    help="Successes from this time on, like 2027-01-31T08:00:00+01:00.",
)
@click.option("--to", "until", type=TIMESTAMP, help="Successes before this time. Default: now.")
@click.option(
    "--limit", type=click.IntRange(1), help="The maximum number, beginning with those that were published first."
)
@RATE
@DELAY
@click.option("--after", type=MESSAGE_ID, default=0, help="Continue after this id: where a replay was interrupted.")
@click.option("--dry-run", is_flag=True, help="Only print how many would be published again; counting stops at 10,000.")
@YES
@click.pass_obj
def replay(
    session: CliSession,
    topic: str,
    since: datetime,
    until: datetime | None,
    limit: int | None,
    rate: float | None,
    delay: timedelta,
    after: int,
    dry_run: bool,
    yes: bool,
) -> None:
    """Publish again the messages that succeeded in a time.

    Each becomes a new message without a key that refers to the old one. Its handler runs again, with all its effects.
    """
    if until is not None and until <= since:
        raise click.UsageError(f"--to {until.isoformat()} is not later than --from {since.isoformat()}")
    with session.connect() as conn:
        clock = run(conn, now())
        # It never goes beyond now: a replayed message succeeds too, and would be replayed again.
        wanted: dict[str, Any] = {
            "topic": topic,
            "since": since,
            "until": min(until or clock, clock),
            "limit": limit or 2**62,
            "after": after,
        }
        with conn.transaction():
            conn.execute(READ_TIMEOUT)
            most = min(wanted["limit"], BOUND)
            found, whole = run(conn, count_replayable(topic, since, wanted["until"], after, most))
        if dry_run or not found:
            _preview(session, found, whole)
            return
        if found < BOUND:
            # What was counted to its end, and no more, is what is asked for.
            wanted["limit"] = found
        if not yes:
            click.confirm(f"publish {_shown(whole)} of topic {topic} again?", abort=True, err=True)
        _replay(session, conn, wanted, RateSpreader(rate, delay), found)


def _shown(count: int) -> str:
    return f"{'at least ' if count >= BOUND else ''}{plural(count, 'message')}"


def _preview(session: CliSession, found: int, whole: int) -> None:
    session.record({"messages": whole, "no_payload": found - whole, "at_least": found >= BOUND})
    if found:
        session.say(f"would publish {_shown(whole)} again: run it again without --dry-run")
    else:
        session.note("no succeeded message matches: nothing is published again")
    report_skipped(session, Counter(no_payload=found - whole))


def _replay(
    session: CliSession, conn: psycopg.Connection, wanted: dict[str, Any], spreader: RateSpreader, found: int
) -> None:
    outcomes, left, after = Counter[str](), wanted["limit"], wanted["after"]
    with show_progress("replaying", found) as progress:
        progress.expect(found)
        try:
            while left > 0:
                page = {"limit": min(left, BATCH), "rate": spreader.rate, "delay": spreader.delay(outcomes["replayed"])}
                times = {"from_": wanted["since"], "to": wanted["until"]}
                rows = run(conn, dead_calls.replay(wanted["topic"], **times, **page, after=after))
                if not rows:
                    break
                outcomes.update(each.outcome for each in rows)
                left, after = left - len(rows), max(each.archived_id for each in rows)
                for each in rows:
                    session.record(asdict(each))
                progress.advance(len(rows))
        except BaseException:
            session.problem(f"published {plural(outcomes['replayed'], 'message')} again; go on with --after {after}")
            raise
    session.say(f"published {plural(outcomes['replayed'], 'message')} again")
    report_skipped(session, outcomes)
