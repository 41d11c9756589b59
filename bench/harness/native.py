"""Stands in for docker, with which the harness starts its server and the adapters: here both run on this machine."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
from bench.harness import ledger
from bench.harness.server import Server
from bench.harness.systems import System
from bench.peers.environment import FOLDER

RESULTS = FOLDER / "harness" / "results"
# What killed processes had locked is free when their locks expire.
DRAIN_WITHIN_S = 120.0


@dataclass
class Native:
    """Functions that replace those of the harness's module `orchestrator`, for one run of one system.

    Attributes:
        orchestrator: that module.
        adapters: the module with the table of the systems.
        server: the server of the run.
        system: the system.
        folder: where the publishers of pgrouse record what they publish.
        check: what became of the messages, when the run has ended.
    """

    orchestrator: Any
    adapters: Any
    server: Server
    system: System
    folder: Path
    check: ledger.Check | None = None

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let the harness call them in the block."""
        self._preflight, self._run = self.orchestrator.preflight_database, self.orchestrator.run_one_system
        instead = {
            "RESULTS_ROOT": RESULTS,
            "start_postgres": self._start,
            "stop_postgres": lambda _image: self.server.clear(),
            "_compose_stop_postgres": lambda _image: self.server.stop(),
            "_compose_start_postgres": lambda _image: self.server.start(),
            "preflight_database": self._prepare,
            "run_one_system": self._run_and_check,
        }
        before = {name: getattr(self.orchestrator, name) for name in instead}
        self._register()
        try:
            vars(self.orchestrator).update(instead)
            yield
        finally:
            vars(self.orchestrator).update(before)

    def _register(self) -> None:
        self.adapters.ADAPTERS[self.system.name] = self.adapters.AdapterEntry(
            bench_dir=self.system.folder, builder=lambda _skip: None, launcher=self._launch
        )

    def _launch(self, manifest: Any, settings: dict[str, str]) -> Any:
        return self.adapters.LaunchSpec(self.system.command, self.adapters._base_env(manifest, settings))  # noqa: SLF001

    def _start(self, _image: str) -> None:
        self.server.start()
        adapters = self.adapters
        adapters.PG_USER, adapters.PG_PASS, adapters.PG_PORT = "postgres", self.server.password, self.server.port

    def _prepare(self, manifest: Any, **options: Any) -> None:
        """Make the database; instead of its extensions install what this system has for them."""
        if self.system.prepare is None:
            self._preflight(manifest, **options)
            return
        self._preflight(replace(manifest, extensions=[]), **options)
        self.system.prepare(self.server.dsn(manifest.db_name))

    def _run_and_check(self, system: str, **options: Any) -> Any:
        told = self._run(system, **options)
        if self.system.is_pgrouse:
            self.check = self._checked(self.adapters.AdapterManifest.load(self.system.folder).db_name)
        return told

    def _checked(self, database: str) -> ledger.Check:
        """Let a worker process what is left, and compare the tables with what was published."""
        told = {"DATABASE_URL": self.adapters.pg_url(database), "PRODUCER_MODE": "fixed", "PRODUCER_RATE": "0"}
        worker = subprocess.Popen(self.system.command, env={**os.environ, **told}, stdout=subprocess.DEVNULL)
        try:
            with psycopg.connect(self.server.dsn(database), autocommit=True) as conn:
                give_up_at = time.monotonic() + DRAIN_WITHIN_S
                while time.monotonic() < give_up_at and conn.execute(ledger.LEFT).fetchone() != (0,):
                    time.sleep(0.1)
                return ledger.check(conn, self.folder)
        finally:
            worker.kill()
            worker.wait()
