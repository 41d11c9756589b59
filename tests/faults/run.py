"""One run: publishers and operators, a storm of faults, and the checker next to them.

Then follow calm, a drain, and the last check.
"""

from __future__ import annotations

import json
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from tests.faults import logs
from tests.faults.checker import Checker, Finding
from tests.faults.intruders import HOSTILE, VISITOR, HostilePublisher, Visitor
from tests.faults.ledger import Group, Ledger
from tests.faults.remote import RemoteWorker
from tests.faults.rivals import Rival
from tests.faults.storm import STOPPED_WITHIN_S, Storm
from tests.faults.system import System
from tests.faults.topics import PUBLISHED, REMOTE, WORKED
from tests.faults.traffic import Actor, Operator, Publisher, acting

# The pause between two checks; at most a fifth of the time is spent on them.
CHECK_EVERY_S = 0.4
DRAINED_WITHIN_S = 90
# Longer than a drain waits.
LONG = {"do": "succeed", "for": 8}
WAITING = "SELECT id, topic FROM messages.message WHERE topic = ANY (%s) LIMIT 20"


@dataclass
class Inspector(threading.Thread):
    """Runs the checker on one snapshot after the other, whenever the server answers."""

    dsn: str
    checker: Checker
    findings: list[Finding] = field(default_factory=list)
    checks: int = 0
    broken: BaseException | None = None

    def __post_init__(self) -> None:
        super().__init__(name="inspector", daemon=True)
        self.stopping = threading.Event()

    def __hash__(self) -> int:
        return id(self)

    def run(self) -> None:
        """Check until stopped, or until there is a finding."""
        try:
            while not self.stopping.is_set() and not self.findings:
                try:
                    self._check()
                except psycopg.OperationalError:
                    self.stopping.wait(0.2)
        except BaseException as error:  # noqa: BLE001 - raised by the thread that joins this one
            self.broken = error

    def _check(self) -> None:
        with psycopg.connect(self.dsn, autocommit=True, connect_timeout=5) as conn:
            while not self.stopping.is_set() and not self.findings:
                began = time.monotonic()
                self.findings = self.checker.check(conn)
                self.checks += 1
                self.stopping.wait(max(CHECK_EVERY_S, 4 * (time.monotonic() - began)))


@dataclass
class Report:
    """The result of a run."""

    seed: str
    events: str
    published: int
    checks: int
    crashes: int
    findings: list[str]

    def __str__(self) -> str:
        summary = (
            f"seed {self.seed}: {self.published} published, {self.checks} checks, {self.crashes} crashes of the server"
        )
        return "\n".join([summary, *self.findings, *(["", self.events] if self.findings else [])])


class Run:
    """One run on a system."""

    def __init__(self, system: System, seed: str) -> None:
        self.system, self.seed = system, seed
        self.ledger = Ledger()
        self.storm = Storm(system, seed)
        self.checker = Checker(self.ledger, self.storm.crashes)
        self.inspector = Inspector(system.database.dsn, self.checker)
        self.findings: list[str] = []

    def under(
        self, faults: list[str], pause_s: tuple[float, float], *, daemons: int = 2, for_s: float = math.inf
    ) -> Report:
        """Run with these faults while daemons work, and return the result.

        It ends early when there is a finding, and begins no further fault after `for_s`.
        """
        self.system.begin(daemons)
        self._run_storm(faults, pause_s, PUBLISHED, for_s)
        if not self.findings:
            self._open("shut")
            self._drain_under_load()
            self._until_all_is_worked(list(WORKED))
            self._stop()
            self._check_all()
        return self._report()

    def without_a_daemon(self, faults: list[str], pause_s: tuple[float, float]) -> Report:
        """Run with these faults, a web server and workers over HTTP, but no daemon."""
        server = self.system.web
        server.start()
        server.wait()
        workers = [
            RemoteWorker(f"remote-{n}", server, self.system.journal.path, self.ledger, self.seed) for n in range(6)
        ]
        with acting(list(workers)):
            self._run_storm(faults, pause_s, [REMOTE], math.inf)
            server.wait()
            if not self.findings:
                self._until_all_is_worked([REMOTE])
        if not self.findings:
            self._check_all()
        return self._report()

    def _run_storm(self, faults: list[str], pause_s: tuple[float, float], topics: list[str], for_s: float) -> None:
        over_at = time.monotonic() + for_s
        with self._inspected(), acting(self._actors(topics)) as actors:
            self.storm.note("begin")
            self._until_it_works()
            self.storm.run(faults, pause_s, enough=lambda: time.monotonic() > over_at or self._is_over(actors))

    def _is_over(self, actors: list[Actor]) -> bool:
        return bool(self.inspector.findings or self.inspector.broken or any(actor.broken for actor in actors))

    @contextmanager
    def _inspected(self) -> Iterator[None]:
        self.inspector.start()
        try:
            yield
        finally:
            self.inspector.stopping.set()
            self.inspector.join(60)
        if self.inspector.broken:
            raise self.inspector.broken
        self.findings += map(str, self.inspector.findings)

    def _actors(self, topics: list[str]) -> list[Actor]:
        direct, proxied = self.system.database.dsn, self.system.for_publishers.dsn
        ways = enumerate((direct, proxied, proxied))
        return [
            *(Publisher(number, topics, dsn, self.ledger, self.seed) for number, dsn in ways),
            *(Rival(f"rival-{n}", direct, self.system.journal.path, self.ledger, self.seed) for n in range(3)),
            Operator("operator", direct, self.ledger, self.seed),
            Visitor("visitor", self._dsn_of(VISITOR), self.ledger, self.seed),
            *(
                [HostilePublisher("hostile", self._dsn_of(HOSTILE), self.ledger, self.seed)]
                if "often" in topics
                else []
            ),
        ]

    def _dsn_of(self, user: str) -> str:
        return self.system.server.dsn(self.system.database.name, user)

    def _until_it_works(self) -> None:
        deadline = time.monotonic() + 60
        while not self._journal() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.storm.note("workers are at work")

    def _check_all(self) -> None:
        with psycopg.connect(self.system.database.dsn, autocommit=True) as conn:
            self.findings += map(str, self.checker.left(conn))
            self.findings += map(str, self.checker.check_all(conn, self._journal()))
        self.findings += [*self.storm.problems, *self._logged()]

    def _open(self, topic: str) -> None:
        with self.system.queue() as queue:
            queue.call("resume", topic)

    def _drain_under_load(self) -> None:
        """Stop all daemons while handlers run that take longer than the drain."""
        with self.system.queue() as queue:
            with self.ledger.recorded(Group("often", [f"held/{n}" for n in range(10)])) as group:
                group.ids = held = [queue.publish("often", payload=Jsonb(LONG | {"tag": tag})) for tag in group.tags]
            waiting = "SELECT FROM messages.message WHERE id = ANY (%s) AND claim_id IS NULL"
            self._wait("what takes long does not begin", lambda: not queue.rows(waiting, [held]))
            self._stop()
            locked = queue.rows("SELECT id, topic, locked_by FROM messages.message WHERE claim_id IS NOT NULL")
            self.findings += [f"a drain in calm weather forgot: {row}" for row in locked]
            self.ledger.cancelled += queue.call("cancel", held)
        self.system.begin(len(self.system.daemons))

    def _until_all_is_worked(self, topics: list[str]) -> None:
        with self.system.queue() as queue:
            drained = self._wait("the queue does not drain", lambda: not queue.rows(WAITING, [topics]))
            if not drained:
                why = f"SELECT m.*, e.* FROM ({WAITING}) AS m, messages.explain(m.id) AS e"
                self.findings += map(str, queue.rows(why, [topics]))

    def _wait(self, otherwise: str, condition: Callable[[], bool]) -> bool:
        """Return whether the condition became true in time; record it otherwise."""
        deadline = time.monotonic() + DRAINED_WITHIN_S
        while not condition():
            if time.monotonic() > deadline:
                self.findings.append(otherwise)
                return False
            time.sleep(0.1)
        return True

    def _stop(self) -> None:
        for daemon in self.system.daemons:
            if not daemon.alive:
                self.findings.append(f"daemon {daemon.pid} ended by itself: {daemon.log.read_text()[-2000:]}")
        stopping = [daemon for daemon in self.system.daemons if daemon.alive]
        for daemon in stopping:
            daemon.event("daemon.started", within_s=DRAINED_WITHIN_S)
        for daemon in stopping:
            daemon.send(signal.SIGTERM)
        for daemon in stopping:
            code = daemon.exit_code(STOPPED_WITHIN_S)
            if code:
                self.findings.append(f"daemon {daemon.pid} ended with {code}: {daemon.log.read_text()[-2000:]}")

    def _journal(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.system.journal.path.read_text().rpartition("\n")[0].splitlines()]

    def _logged(self) -> list[str]:
        """Return what the server and the daemons logged that the storm did not cause."""
        server, disturbed = self.system.server, self.storm.disturbances
        return logs.of_server(server.place.data, self.system.database.name, disturbed) + [
            f"daemon {daemon.pid} logged {entry}"
            for daemon in self.system.fleet.daemons
            for entry in logs.of_daemon(daemon.logged(), disturbed)
        ]

    def _report(self) -> Report:
        return Report(
            self.seed,
            self.storm.events(),
            self.ledger.count(),
            self.inspector.checks,
            len(self.storm.crashes),
            self.findings,
        )


def shuffled(names: list[str], times: int, seed: str) -> list[str]:
    """Return each of them this many times, in the order of the seed."""
    chosen = names * times
    Random(f"{seed} order").shuffle(chosen)
    return chosen
