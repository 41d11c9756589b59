"""Runs systems through scenarios, and reports those that cannot take part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.harness.result import ScenarioReport
from bench.harness.run import Harness
from bench.harness.scenario import SHORT, Scenario, own
from bench.harness.systems import SYSTEMS, System, install
from bench.peers.environment import Unavailable
from bench.usage import Machine

# The name that stands for all scenarios of the harness.
OWN = "scenarios"
NOTES = [
    "A cell has the median rate of completed messages, and the p99 from the publish to the start of the handler in the "
    "last 30 s of the phase: with shorter phases, those before it count too.",
    "Dead tuples: at the end of each phase, of all tables that the adapter names.",
    "Completed: of the published messages, as the adapters count; without those that wait, and those that a killed "
    "process had not told yet.",
    "Checked: whether each published message is in the archive exactly once; only pgrouse's can be told apart.",
]


def measure(
    checkout: Path,
    machine: Machine,
    *,
    names: Sequence[str],
    systems: Sequence[str],
    seconds: int,
    say: Callable[[str], object],
) -> Iterator[ScenarioReport]:
    """Run scenarios, each with all systems in turn.

    Args:
        checkout: the folder of the harness.
        machine: tells when the machine is quiet.
        names: of scenarios; all short ones if empty.
        systems: their names; all if empty.
        seconds: how long a phase lasts.
        say: is told which systems cannot take part.
    """
    harness = Harness(checkout, machine)
    installed, out = _install(checkout, systems or list(SYSTEMS), say)
    for name, scenario in _scenarios(harness, names or list(SHORT)).items():
        report = ScenarioReport(f"harness-{name}", _about(scenario, seconds), notes=[*NOTES, *out])
        report.results += [harness.measure(system, name, scenario, seconds) for system in installed]
        yield report


def _install(checkout: Path, names: Sequence[str], say: Callable[[str], object]) -> tuple[list[System], list[str]]:
    installed, out = [], []
    for name in names:
        try:
            installed.append(install(checkout, name))
        except Unavailable as error:
            out.append(f"Without {name}: {error}.")
            say(f"without {name}: {error}")
    return installed, out


def _scenarios(harness: Harness, names: Sequence[str]) -> dict[str, Scenario]:
    chosen = {name: SHORT[name] for name in names if name != OWN}
    return chosen | (own(harness.scenarios) if OWN in names else {})


def _about(scenario: Scenario, seconds: int) -> str:
    load = f"{scenario.depth:,} waiting" if scenario.depth else f"{scenario.rate:,} a second"
    each = f"each of {scenario.processes} processes" if scenario.processes > 1 else "one process"
    parts = [scenario.about, f"{each}: {load}, {scenario.workers} at once", f"{seconds} s a phase"]
    return "; ".join(filter(None, parts)) + "."
