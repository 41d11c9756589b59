"""Runs an unchanged checkout of the harness in this process, with pgrouse added to its systems.

What it does with docker is replaced in memory (native.py); everything else is the code of the checkout.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from bench.harness.native import RESULTS, Native
from bench.harness.result import Result
from bench.harness.scenario import Scenario
from bench.harness.server import Server
from bench.harness.systems import System
from bench.usage import Machine

SAMPLE_S = 1
LOAD_MORE = 1.5


class NoHarness(Exception):
    """The folder is no checkout of the harness; the text says what is missing."""


@dataclass
class Harness:
    """A checkout of the harness.

    Args:
        checkout: its folder.
        machine: tells when the machine is quiet.
    """

    checkout: Path
    machine: Machine
    _modules: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (self.checkout / "bench_harness" / "orchestrator.py").exists():
            raise NoHarness(f"{self.checkout} has no bench_harness/orchestrator.py: give a checkout of the harness")
        self._modules = _load(self.checkout / "bench_harness")

    @property
    def scenarios(self) -> Mapping[str, list[str]]:
        """Its own scenarios."""
        found: Mapping[str, list[str]] = self._modules["phases"].SCENARIOS
        return found

    def measure(self, system: System, name: str, scenario: Scenario, seconds: int) -> Result:
        """Run one system through one scenario, each phase this long; check the messages of pgrouse one by one."""
        phases = [self._phase(spec, seconds) for spec in scenario.phases]
        error = ""
        with tempfile.TemporaryDirectory() as folder, Server(self.checkout / "postgres.conf") as server:
            native = Native(self._modules["orchestrator"], self._modules["adapters"], server, system, Path(folder))
            told = {**scenario.env, "PRODUCER_PACING": "adapter", "PGROUSE_BENCH_LEDGER": folder}
            self.machine.wait_until_quiet()
            with native.installed(), _environment(told):
                try:
                    self._drive(system, name, scenario, phases)
                except Exception as failed:  # noqa: BLE001 - one that fails must not end the others
                    error = f"{type(failed).__name__}: {failed}".splitlines()[0]
        raw = max(RESULTS.glob(f"{name}-*/raw.csv"), key=lambda file: file.stat().st_mtime)
        return Result.read(raw, system.name, [(each.label, each.type.value) for each in phases], native.check, error)

    def _phase(self, spec: str, seconds: int) -> Any:
        is_warm_up = spec.endswith("=warmup")
        return self._modules["phases"].parse_phase_spec(f"{spec}:{min(seconds, 5) if is_warm_up else seconds}s")

    def _drive(self, system: System, name: str, scenario: Scenario, phases: list[Any]) -> None:
        self._modules["orchestrator"].drive(
            systems=[system.name],
            scenario=name,
            phases=phases,
            pg_image="",
            # The server is new in each run.
            fast=True,
            skip_build=True,
            sample_every_s=SAMPLE_S,
            producer_rate=scenario.rate,
            producer_mode="depth-target" if scenario.depth else "fixed",
            target_depth=scenario.depth or 1000,
            worker_count=scenario.workers,
            high_load_multiplier=LOAD_MORE,
            awa_completion_batch_size=None,
            replicas=scenario.processes,
            cli_args=sys.argv,
        )


def _load(package: Path) -> dict[str, Any]:
    """Import the modules of the harness, without its folder on the path: it has a module `bench` too."""
    # Its plots need packages that nothing else here needs.
    plots = ModuleType("bench_harness.plots")
    plots.render_all = lambda *_, **__: None  # type: ignore[attr-defined]
    sys.modules[plots.__name__] = plots
    spec = spec_from_file_location("bench_harness", package / "__init__.py", submodule_search_locations=[str(package)])
    if spec is None or spec.loader is None:
        raise NoHarness(f"{package} cannot be imported")
    sys.modules["bench_harness"] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules["bench_harness"])
    return {name: import_module(f"bench_harness.{name}") for name in ("orchestrator", "adapters", "phases")}


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables, which the harness passes to its adapters."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
