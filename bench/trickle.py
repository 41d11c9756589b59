"""Measures a daemon with messages at random times: how soon each starts, and the cost.

The cost is compared with publishing them without a daemon.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench import program, usage
from bench.figure import Figure, Report, Target, percentile
from bench.postgres import Database, Postgres
from bench.usage import Machine

RATES = (100, 1000)
CONNECTIONS = 4


@dataclass(frozen=True)
class Trickle:
    """The results of some seconds of messages at one rate.

    Attributes:
        alone_cores: CPU of the server while no daemon processes them, in cores; NaN when it is on another machine.
        server_cores: CPU of the server while a daemon does.
        worker_cores: CPU of the daemon.
        delays: from the call of each INSERT to its handler, in milliseconds.
    """

    alone_cores: float
    server_cores: float
    worker_cores: float
    delays: list[float]


def measure(postgres: Postgres, machine: Machine, rounds: int, seconds: int) -> Report:
    """Publish at each rate in turn, without and with a daemon."""
    runs: dict[int, list[Trickle]] = defaultdict(list)
    for _ in range(rounds):
        for rate in RATES:
            with postgres.database("alone") as alone, postgres.database("trickle") as database:
                machine.wait_until_quiet()
                runs[rate].append(run(postgres, alone, database, rate, seconds))
    return Report(
        "trickle",
        f"Messages at random times over {CONNECTIONS} connections, a transaction each, for {seconds} s.",
        [figure for rate in RATES for figure in _figures(rate, runs[rate])],
    )


def run(postgres: Postgres, quiet: Database, database: Database, rate: int, seconds: int) -> Trickle:
    """Publish at this rate into a database without a daemon, then into one with a daemon."""
    with tempfile.TemporaryDirectory() as folder:
        begun, called = Path(folder) / "begun", Path(folder) / "called"
        alone = postgres.cpu_s()
        program.steady_publisher(quiet, rate, seconds, CONNECTIONS, called)
        alone = postgres.cpu_s() - alone
        with program.daemon(database, marks=begun) as daemon:
            program.wait_until_asleep(database)
            server, worker = postgres.cpu_s(), usage.family_cpu_s(daemon.pid)
            program.steady_publisher(database, rate, seconds, CONNECTIONS, called)
            server, worker = postgres.cpu_s() - server, usage.family_cpu_s(daemon.pid) - worker
            calls = program.Marks(called).read()
            starts = program.Marks(begun).wait_for(set(calls))
    return Trickle(alone / seconds, server / seconds, worker / seconds, [(starts[n] - calls[n]) / 1e6 for n in calls])


def _figures(rate: int, runs: list[Trickle]) -> Iterator[Figure]:
    bounds: tuple[Target | None, ...] = (Target(2.0), Target(6.0), Target(0.35, of_value=True))
    if rate < max(RATES):
        bounds = None, None, None
    p50, p99, cores = bounds
    call = f"{rate}/s, call of INSERT to handler"
    yield Figure(f"{call}, p50", "ms", [percentile(run.delays, 0.5) for run in runs], target=p50)
    yield Figure(f"{call}, p99", "ms", [percentile(run.delays, 0.99) for run in runs], target=p99)
    alone = Figure(f"{rate}/s, CPU of the server, no daemon", "cores", [run.alone_cores for run in runs])
    yield alone
    yield Figure(f"{rate}/s, CPU of the server", "cores", [run.server_cores for run in runs], alone, cores)
    yield Figure(f"{rate}/s, CPU of the daemon", "cores", [run.worker_cores for run in runs])
