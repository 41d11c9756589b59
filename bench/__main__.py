"""The benchmarks: `python -m bench [NAME ...]`, from the checkout.

docs/reference/performance.md says how they measure.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from pathlib import Path

import click
from bench import (
    dashboard,
    drain,
    growth,
    handler_kinds,
    http_publish,
    idle,
    lake_files,
    latency,
    policies,
    policies_elsewhere,
    publish,
    slow_disk,
    spark_consume,
    spark_export,
    spark_publish,
    trickle,
)
from bench.figure import Report
from bench.harness import field as harness_field
from bench.harness.run import NoHarness
from bench.harness.systems import SYSTEMS
from bench.peers import chart, comparisons
from bench.peers.field import Field
from bench.postgres import Postgres
from bench.usage import Machine

Benchmark = Callable[[Postgres, Machine], Report]

BENCHMARKS: dict[str, Benchmark] = {
    "drain": lambda postgres, machine: drain.measure(postgres, machine, rounds=5, messages=200_000),
    "handlers": lambda postgres, machine: handler_kinds.measure(postgres, machine, rounds=3),
    "policies": lambda postgres, machine: policies.measure(postgres, machine, rounds=3, messages=100_000),
    "elsewhere": lambda postgres, machine: policies_elsewhere.measure(postgres, machine, rounds=5),
    "latency": lambda postgres, machine: latency.measure(postgres, machine, rounds=4, messages=400),
    "trickle": lambda postgres, machine: trickle.measure(postgres, machine, rounds=3, seconds=8),
    "publish": lambda postgres, machine: publish.measure(postgres, machine, rounds=10, seconds=3, clients=8),
    "spark-export": lambda postgres, machine: spark_export.measure(
        postgres, machine, rounds=3, rows=1_000_000, growth=(1_000_000, 10_000_000)
    ),
    "lake-files": lambda postgres, machine: lake_files.measure(
        postgres, machine, rows=60_000, shapes=((20, 1), (100, 1), (500, 1), (3_000, 1), (20, 6), (100, 6), (500, 6))
    ),
    "spark-publish": lambda postgres, machine: spark_publish.measure(postgres, machine, rounds=3, messages=1_000_000),
    "spark-publish-keys": lambda postgres, machine: spark_publish.measure(
        postgres, machine, rounds=3, messages=1_000_000, columns=spark_publish.KEYS
    ),
    "spark-consume": lambda postgres, machine: spark_consume.measure(postgres, machine, rounds=3),
    "http": lambda postgres, machine: http_publish.measure(postgres, machine, rounds=5, seconds=4, connections=16),
    "dashboard": lambda postgres, machine: dashboard.measure(
        postgres, machine, rounds=3, messages=300_000, ready=1_000_000, archived=10_000_000
    ),
    "idle": lambda postgres, machine: idle.measure(postgres, machine, rounds=3, seconds=30),
    "growth": lambda postgres, machine: growth.measure(
        postgres, machine, rounds=3, ready=10_000_000, archived=10_000_000
    ),
}

# With --long.
LONG: dict[str, Benchmark] = {
    "growth": lambda postgres, machine: growth.measure(
        postgres, machine, rounds=3, ready=10_000_000, archived=50_000_000
    ),
}

# With --peers.
COMPARISONS = {
    "drain": comparisons.drains,
    "latency": comparisons.wakes,
    "load": comparisons.loads,
    "publish": comparisons.publishes,
}

# With --harness.
SCENARIOS = dict.fromkeys([*harness_field.SHORT, harness_field.OWN])


@click.command()
@click.argument(
    "names",
    nargs=-1,
    type=click.Choice([*BENCHMARKS, *COMPARISONS.keys() - BENCHMARKS, *SCENARIOS]),
    metavar="[NAME]...",
)
@click.option("--peers", is_flag=True, help="Install other queues, each into its own environment, and compare.")
@click.option(
    "--charts", type=click.Path(path_type=Path, file_okay=False), help="With --peers: write a chart of each into here."
)
@click.option(
    "--harness",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Run this checkout of github.com/hardbyte/postgresql-job-queue-benchmarking, with pgrouse among its queues.",
)
@click.option("--systems", help=f"With --harness: only these, separated by commas, of {', '.join(SYSTEMS)}.")
@click.option(
    "--seconds", type=click.IntRange(min=3), default=30, show_default=True, help="With --harness: the time of a phase."
)
@click.option("--dsn", help="Measure on this server, as a user who may create databases. Default: a private one.")
@click.option(
    "--flush-ms", type=float, help="Make each flush of the private server take this much longer, as on a network disk."
)
@click.option("--long", is_flag=True, help="With growth: archive 50 million messages, not 10; takes 30 GB of disk.")
@click.option("--no-wait", is_flag=True, help="Do not wait before each run until the machine is quiet.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def main(
    names: tuple[str, ...],
    peers: bool,
    charts: Path | None,
    harness: Path | None,
    systems: str | None,
    seconds: int,
    dsn: str | None,
    flush_ms: float | None,
    long: bool,
    no_wait: bool,
    as_json: bool,
) -> None:
    """Measure pgrouse, each figure next to its limit in the same run.

    NAME: drain, handlers, policies, elsewhere, latency, publish, spark-export, lake-files, spark-publish,
    spark-consume, http, dashboard, trickle, idle or growth; all of them if none is given. `growth` alone takes five
    minutes. With --peers: drain, latency, load or publish. With --harness: pressure, chaos, fleet, peak, or
    `scenarios`, which are the harness's own; the first four if none is given.
    """
    if dsn and flush_ms:
        raise click.UsageError("--flush-ms needs the private server: it cannot slow down one that runs already")
    if charts and not peers:
        raise click.UsageError("--charts needs --peers: only comparisons have charts")
    if harness and (peers or dsn or flush_ms):
        raise click.UsageError("--harness has servers and peers of its own: without --peers, --dsn and --flush-ms")
    _check_names(names, "--harness" if harness else "--peers" if peers else "")
    machine = Machine(wait_s=0 if no_wait else 60)
    if harness:
        _run_harness(harness, machine, names, _systems(systems), seconds, as_json=as_json)
        return
    benchmarks = _comparisons() if peers else BENCHMARKS | (LONG if long else {})
    with slow_disk.library(flush_ms) as preload, Postgres(dsn, preload) as postgres:
        if not as_json:
            click.echo(f"{postgres}{f', each flush {flush_ms:g} ms longer' if flush_ms else ''}\n{_python()}\n")
        reports = [_run(benchmarks[name], postgres, machine, quiet=as_json) for name in names or benchmarks]
        if charts:
            chart.write(reports, charts)
        if as_json:
            about = {"server": str(postgres), "python": _python(), "flush_ms": flush_ms, "machine": str(machine)}
            click.echo(json.dumps({**about, "reports": [report.as_json() for report in reports]}, indent=2))
        else:
            click.echo(f"The machine: {machine}.")


def _check_names(names: tuple[str, ...], option: str) -> None:
    """Check that the option is one with which these names mean something."""
    meant = {"": BENCHMARKS.keys(), "--peers": COMPARISONS.keys(), "--harness": SCENARIOS.keys()}
    if other := set(names) - meant[option]:
        elsewhere = [with_option for with_option, known in meant.items() if with_option and other <= known]
        where = f"not with {option}" if option else f"only with {' or '.join(elsewhere)}"
        raise click.UsageError(f"{', '.join(sorted(other))}: {where}")


def _systems(given: str | None) -> list[str]:
    names = given.split(",") if given else []
    if other := set(names) - SYSTEMS.keys():
        raise click.UsageError(f"--systems: {', '.join(sorted(other))}: not one of {', '.join(SYSTEMS)}")
    return names


def _run_harness(
    checkout: Path, machine: Machine, names: tuple[str, ...], systems: list[str], seconds: int, *, as_json: bool
) -> None:
    """Run a checkout of the harness."""
    if not as_json:
        click.echo(f"{_python()}\n")
    shown = []
    try:
        for report in harness_field.measure(
            checkout,
            machine,
            names=names,
            systems=systems,
            seconds=seconds,
            say=lambda said: click.echo(said, err=True),
        ):
            shown.append(report.as_json())
            if not as_json:
                click.echo(report.as_text() + "\n")
    except NoHarness as error:
        raise click.UsageError(f"--harness: {error}") from error
    if as_json:
        about = {"python": _python(), "machine": str(machine), "reports": shown}
        click.echo(json.dumps(about, indent=2))
    else:
        click.echo(f"The machine: {machine}.")


def _comparisons() -> dict[str, Benchmark]:
    """Install the peers; return the comparisons with them."""
    among = Field.install(lambda said: click.echo(said, err=True))
    return {
        name: lambda postgres, machine, compare=compare: compare(postgres, machine, among, rounds=5)
        for name, compare in COMPARISONS.items()
    }


def _run(benchmark: Benchmark, postgres: Postgres, machine: Machine, *, quiet: bool) -> Report:
    report = benchmark(postgres, machine)
    if not quiet:
        click.echo(report.as_text() + "\n")
    return report


def _python() -> str:
    return f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"


if __name__ == "__main__":
    main(prog_name="python -m bench")
