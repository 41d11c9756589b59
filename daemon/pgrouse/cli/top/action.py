"""The actions of `pgrouse top`, on the connection of the view."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta

import psycopg

from pgrouse.cli.top.snapshot import DeadRow
from pgrouse.client.call import run
from pgrouse.client.calls import dead
from pgrouse.client.calls.monitoring import explain as explain_calls
from pgrouse.client.queries import clock
from pgrouse.client.redrive import BATCH, REDRIVEN_OUTCOMES, RateSpreader

# The maximum number that one confirmation redrives.
AT_ONCE = 1000
TIMEOUT = b"SET LOCAL statement_timeout = '30s'"
DAY = timedelta(days=1)


@dataclass(frozen=True)
class RedriveOptions:
    """How messages are put back.

    Attributes:
        rate: how many become available a second; None = all at once.
        delay: when the first one does.
        force: also those that were redriven as often as max_redrives allows.
    """

    rate: float | None = None
    delay: timedelta = timedelta(0)
    force: bool = False


@dataclass(frozen=True)
class GroupPreview:
    """What a redrive of a group would do: the ids that would be redriven, and how many others not, by reason."""

    group: DeadRow
    ids: list[int]
    staying: Counter[str]
    there_are_more: bool


def preview(conn: psycopg.Connection, group: DeadRow, options: RedriveOptions) -> GroupPreview:
    """Say what putting back the oldest of a group would do."""
    with conn.transaction():
        conn.execute(TIMEOUT)
        since = run(conn, clock.now()) - DAY
        found = run(conn, dead.find_dead(group.topic, group.result, group.error_fingerprint, since, limit=AT_ONCE))
        # Without a fingerprint the filter takes all of the topic and result.
        ids = [each.id for each in found if each.error_fingerprint == group.error_fingerprint]
        would = run(conn, dead.preview_redrive(ids, force=options.force))
    backs = {each.archived_id for each in would if each.outcome in REDRIVEN_OUTCOMES}
    staying = Counter(each.outcome for each in would if each.outcome not in REDRIVEN_OUTCOMES)
    return GroupPreview(group, [each for each in ids if each in backs], staying, len(found) == AT_ONCE)


def redrive(conn: psycopg.Connection, ids: list[int], options: RedriveOptions) -> Counter[str]:
    """Put these back; return how many had which outcome.

    Interrupted in the middle, what was done stays done, and is not done twice.
    """
    outcomes: Counter[str] = Counter()
    spreader = RateSpreader(options.rate, options.delay)
    for start in range(0, len(ids), BATCH):
        delay = spreader.delay(sum(outcomes[each] for each in REDRIVEN_OUTCOMES))
        with conn.transaction():
            conn.execute(TIMEOUT)
            rows = run(conn, dead.redrive(ids[start : start + BATCH], options.rate, delay, options.force))
        outcomes.update(each.outcome for each in rows)
    return outcomes


def explain(conn: psycopg.Connection, message_id: int) -> list[explain_calls.Reason]:
    """Return why a message is not running, or how it ended, the most decisive reason first."""
    with conn.transaction():
        conn.execute(TIMEOUT)
        return run(conn, explain_calls.explain(message_id))
