"""Measures how fast one daemon processes a backlog, for several kinds of handlers, each next to its limit.

The daemon has the default settings.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import psycopg
from bench import drain, handlers
from bench.figure import Figure, Report, Target
from bench.postgres import Database, Postgres
from bench.usage import Machine

CLIENTS = 2
AT_ONCE = 100
CONNECTIONS = 16
NAP_FOR_S = 3
PLAIN = drain.plain_sql_name(CLIENTS)
NAPS = f"{AT_ONCE} asyncio tasks that only sleep"
BY_HAND = f"the same statements by hand, {CONNECTIONS} connections"
EFFECT = "CREATE TABLE effect (n bigint)"
# The statements of a worker without pgrouse for a message that it has claimed: its own write, and the end of the
# message.
BY_HAND_STATEMENTS = (
    b"INSERT INTO effect (n) VALUES (%s)",
    b"""
    WITH gone AS (DELETE FROM messages.message AS m WHERE m.id = %s RETURNING m.*)
    INSERT INTO messages.message_archive (
      id, topic, priority, payload, created_at, available_at, attempts, runs, locked_at, result, handled_by)
    SELECT g.id, g.topic, g.priority, g.payload, g.created_at, g.available_at, 1, 1, now(), 'success', 'by hand'
    FROM gone AS g
    """,
)


@dataclass(frozen=True)
class Kind:
    """One kind of handler.

    Attributes:
        what: what the handler does.
        noop: its name in bench/handlers.py.
        messages: how many are drained.
        limit: the name of the figure that it is compared with.
        target: the share of the limit that it must reach.
    """

    what: str
    noop: str
    messages: int
    limit: str
    target: float


KINDS = (
    Kind("async, does nothing", "nothing", 100_000, PLAIN, 0.6),
    Kind("sync in a thread, does nothing", "nothing_in_thread", 20_000, PLAIN, 0.2),
    Kind("async, sleeps 5 ms", "nap", 40_000, NAPS, 0.85),
    Kind("ctx.transaction() with one INSERT", "insert", 5_000, BY_HAND, 0.6),
)


def measure(postgres: Postgres, machine: Machine, rounds: int) -> Report:
    """Drain a backlog by each kind of handler, and measure the limits in the same round."""
    rates: dict[str, list[float]] = defaultdict(list)
    with ExitStack() as ends:
        backlogs: dict[int, Database] = {}
        for count in sorted({each.messages for each in KINDS}):
            backlogs[count] = ends.enter_context(postgres.database(f"backlog_{count}"))
            with backlogs[count].connect() as conn:
                conn.execute(EFFECT)
            drain.publish(backlogs[count], count)
        most, fewest = max(backlogs), min(backlogs)
        for _ in range(rounds):
            rates[PLAIN].append(drain.by_plain_sql(postgres, machine, backlogs[most], most, CLIENTS).rate)
            rates[NAPS].append(asyncio.run(_naps()))
            rates[BY_HAND].append(_by_hand(postgres, machine, backlogs[fewest]))
            for each in KINDS:
                backlog = backlogs[each.messages]
                run = drain.by_daemon(postgres, machine, backlog, each.messages, concurrency=None, noop=each.noop)
                rates[each.what].append(run.rate)
    return _report(rates)


async def _naps() -> float:
    """Return how many naps per second a bare event loop completes."""
    ended, end = 0, time.monotonic() + NAP_FOR_S

    async def nap_again_and_again() -> None:
        nonlocal ended
        while time.monotonic() < end:
            await handlers.nap(None)
            ended += 1

    await asyncio.gather(*(nap_again_and_again() for _ in range(AT_ONCE)))
    return ended / NAP_FOR_S


def _by_hand(postgres: Postgres, machine: Machine, backlog: Database) -> float:
    """Return how many messages per second a program ends that has claimed all of them before."""
    with postgres.database("by_hand", backlog) as database:
        with database.connect() as conn:
            ids = [found for (found,) in conn.execute("SELECT m.id FROM messages.message AS m ORDER BY m.id")]
        postgres.checkpoint()
        machine.wait_until_quiet()
        return len(ids) / asyncio.run(_end_all(database, ids))


async def _end_all(database: Database, ids: list[int]) -> float:
    """End messages over several connections; return the seconds that it took."""
    left = iter(ids)
    conns = [await psycopg.AsyncConnection.connect(database.dsn, autocommit=True) for _ in range(CONNECTIONS)]
    began = time.monotonic()
    await asyncio.gather(*(_end_some(conn, left) for conn in conns))
    took = time.monotonic() - began
    for conn in conns:
        await conn.close()
    return took


async def _end_some(conn: psycopg.AsyncConnection, left: Iterator[int]) -> None:
    for message_id in left:
        async with conn.transaction():
            for statement in BY_HAND_STATEMENTS:
                await conn.execute(statement, [message_id])


def _report(rates: dict[str, list[float]]) -> Report:
    limits = {name: Figure(name, "messages/s", rates[name]) for name in (PLAIN, NAPS, BY_HAND)}
    figures = [
        Figure(each.what, "messages/s", rates[each.what], limits[each.limit], Target(each.target, at_least=True))
        for each in KINDS
    ]
    return Report(
        "handlers",
        "Backlogs drained by one daemon with the default settings, by kind of handler.",
        [*limits.values(), *figures],
    )
