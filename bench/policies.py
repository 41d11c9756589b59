"""Measures the cost of channels and of their limits for the drain.

(`policies_elsewhere` measures policies that are not used.)
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack

from bench import drain
from bench.figure import Figure, Report, Target
from bench.postgres import Database, Postgres
from bench.usage import Machine

PLAIN = "no policy anywhere"
CHANNELS = "10,000 channels"
LIMITED = "10,000 channels, each with a limit"
# Each way to publish and to limit the backlog, with the share of the plain drain's rate that it must reach.
WAYS = {
    PLAIN: ("NULL::text", "SELECT", None),
    CHANNELS: ("'c' || n %% 10000", "SELECT", Target(0.4, at_least=True)),
    LIMITED: (
        "'c' || n %% 10000",
        "INSERT INTO messages.topic (topic, channel_concurrency) VALUES ('noop', 1000)",
        None,
    ),
}


def measure(postgres: Postgres, machine: Machine, rounds: int, messages: int) -> Report:
    """Drain each backlog with a daemon, in turn, forward and backward."""
    rates: dict[str, list[float]] = defaultdict(list)
    with ExitStack() as ends:
        backlogs = {way: ends.enter_context(postgres.database(f"backlog_{n}")) for n, way in enumerate(WAYS)}
        for way, backlog in backlogs.items():
            _publish(backlog, messages, way)
        for number in range(rounds):
            # Go forward and backward, so that a drift of the machine affects all in the same way.
            for way in list(WAYS) if number % 2 else reversed(WAYS):
                rates[way].append(drain.by_daemon(postgres, machine, backlogs[way], messages).rate)
    return _report(rates, messages)


def _publish(database: Database, messages: int, way: str) -> None:
    channel, policy, _ = WAYS[way]
    with database.connect() as conn:
        conn.execute(policy.encode())
        conn.execute(
            "INSERT INTO messages.message (topic, channel, payload)"
            f" SELECT 'noop', {channel}, jsonb_build_object('n', n) FROM generate_series(1, %s) AS n".encode(),
            [messages],
        )
        conn.execute("VACUUM ANALYZE messages.message")


def _report(rates: dict[str, list[float]], messages: int) -> Report:
    plain = Figure(PLAIN, "messages/s", rates[PLAIN])
    others = [
        Figure(way, "messages/s", rates[way], plain, target) for way, (_, _, target) in WAYS.items() if way != PLAIN
    ]
    return Report(
        "policies", f"{messages:,} messages with a no-op async handler, drained by one daemon.", [plain, *others]
    )
