"""Runs an unchanged checkout of the harness: in this process, on a private server, with our adapters added to its own.

The harness starts its server and the adapters with docker. Here functions of its module `orchestrator` and entries of
its table `ADAPTERS` are replaced in memory, so that both run on this machine; everything else is the code of the
checkout.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import psycopg
from bench.harness import ledger
from bench.harness.result import Result
from bench.harness.scenario import Scenario
from bench.harness.server import Server
from bench.harness.systems import System, manifest
from bench.peers.environment import FOLDER
from bench.usage import Machine

RESULTS = FOLDER / "harness" / "results"
SAMPLE_S = 1
LOAD_MORE = 1.5
# What killed processes had locked is free when their locks expire.
DRAIN_WITHIN_S = 120.0
STOP_WITHIN_S = 15.0


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
        server = Server(self.checkout / "postgres.conf")
        checked: list[ledger.Check] = []
        with tempfile.TemporaryDirectory() as folder, self._native(server, system, Path(folder), checked):
            phases = [self._phase(spec, seconds) for spec in scenario.phases]
            error = ""
            with _environment({**scenario.env, "PRODUCER_PACING": "adapter", "PGROUSE_BENCH_LEDGER": folder}):
                self.machine.wait_until_quiet()
                try:
                    self._drive(system, name, scenario, phases)
                except Exception as failed:  # noqa: BLE001 - one that fails must not end the others
                    error = f"{type(failed).__name__}: {failed}".splitlines()[0]
        raw = max(RESULTS.glob(f"{name}-*/raw.csv"), key=lambda file: file.stat().st_mtime)
        return Result.read(
            raw, system.name, [(each.label, each.type.value) for each in phases], next(iter(checked), None), error
        )

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

    @contextmanager
    def _native(self, server: Server, system: System, folder: Path, checked: list[ledger.Check]) -> Iterator[None]:
        """Let the harness use this server, and start this system on this machine."""
        adapters, orchestrator = self._modules["adapters"], self._modules["orchestrator"]
        preflight, run_one = orchestrator.preflight_database, orchestrator.run_one_system

        def prepare(manifest: Any, **options: Any) -> None:
            if system.prepare is not None:
                preflight(replace(manifest, extensions=[]), **options)
                system.prepare(server.dsn(manifest.db_name))
            else:
                preflight(manifest, **options)

        def run_and_check(*args: Any, **options: Any) -> Any:
            told = run_one(*args, **options)
            if system.is_pgrouse:
                checked.append(_checked(server, system, folder))
            return told

        def start(_image: str) -> None:
            server.start()
            adapters.PG_PASS = server.password

        adapters.PG_USER, adapters.PG_PORT = "postgres", server.port
        adapters.ADAPTERS[system.name] = adapters.AdapterEntry(
            bench_dir=system.folder,
            builder=lambda _skip: None,
            launcher=lambda manifest, given: adapters.LaunchSpec(system.command, adapters._base_env(manifest, given)),  # noqa: SLF001
        )
        changed = {
            "RESULTS_ROOT": RESULTS,
            "start_postgres": start,
            "stop_postgres": lambda _image: server.clear(),
            "_compose_stop_postgres": lambda _image: server.stop(),
            "_compose_start_postgres": lambda _image: server.start(),
            "preflight_database": prepare,
            "run_one_system": run_and_check,
        }
        before = {name: getattr(orchestrator, name) for name in changed}
        try:
            _set(orchestrator, changed)
            yield
        finally:
            _set(orchestrator, before)
            server.close()


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


def _checked(server: Server, system: System, folder: Path) -> ledger.Check:
    """Let the worker process what is left, and compare the tables with what was published."""
    database = manifest(system)["db_name"]
    url = f"postgresql://postgres:{server.password}@127.0.0.1:{server.port}/{database}"
    env = {**os.environ, "DATABASE_URL": url, "PRODUCER_MODE": "fixed", "PRODUCER_RATE": "0"}
    worker = subprocess.Popen(system.command, env=env, stdout=subprocess.DEVNULL)
    try:
        with psycopg.connect(server.dsn(database), autocommit=True) as conn:
            give_up_at = time.monotonic() + DRAIN_WITHIN_S
            while time.monotonic() < give_up_at and conn.execute(ledger.LEFT).fetchone() != (0,):
                time.sleep(0.1)
            return ledger.check(conn, folder)
    finally:
        worker.terminate()
        worker.wait(STOP_WITHIN_S)


def _set(module: Any, values: Mapping[str, object]) -> None:
    for name, value in values.items():
        setattr(module, name, value)


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
