"""The comparison with peers: their pins, who is skipped, the counts that it checks, and its charts.

No test needs a registry.
"""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.__main__ import main
from bench.figure import Figure, Report
from bench.peers import chart, comparisons, environment
from bench.peers.environment import Unavailable
from bench.peers.field import Field, Rounds
from bench.peers.peer import BEST, DEFAULTS, HERE, PEERS, PGROUSE, PROGRAMS, Peer
from bench.peers.run import Entrant, PeerFailed, bulk, drained
from bench.postgres import Database, Postgres
from bench.usage import Machine
from click.testing import CliRunner

ON_NODE = [peer for peer in PEERS if peer.runs_on_node]
ON_PYTHON = [peer for peer in PEERS if not peer.runs_on_node]

# A queue of one table. What its worker does with a message is in the argument that comes first.
PROGRAM = """
import asyncio, sys, psycopg
sys.path.insert(0, {programs!r})
from contract import Peer, main

class Fake(Peer):
    async def install(self):
        self.sql("CREATE TABLE job (n bigint, is_done boolean DEFAULT false)")
    async def connect(self):
        pass
    async def publish(self, n):
        self.sql("INSERT INTO job VALUES (%s)", [n])
    async def publish_many(self, numbers):
        self.sql("INSERT INTO job SELECT n FROM unnest(%s::bigint[]) AS n", [list(numbers)])
    async def work(self, handle, settings):
        fault = sys.argv.pop()
        if fault == "dies":
            sys.exit(3)
        for n in self.sql("SELECT n FROM job").fetchall():
            handle(n[0])
            if fault == "twice" and n[0] == 2:
                handle(n[0])
        self.sql("DELETE FROM job WHERE n = 1" if fault == "loses" else "SELECT")
        self.sql("UPDATE job SET is_done = true")
        await asyncio.sleep(60)
    def sql(self, statement, values=None):
        with psycopg.connect(self.url, autocommit=True) as conn:
            return conn.execute(statement, values)

main(Fake())
"""


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    """A private server of the benchmarks."""
    with Postgres() as server:
        yield server


class BusyMachine(Machine):
    """Does not look how busy the machine is, which takes a second each time."""

    def wait_until_quiet(self) -> None:
        self.busy.append(1.0)


@pytest.fixture(scope="module")
def machine() -> Machine:
    return BusyMachine(wait_s=0)


def fake(folder: Path, fault: str = "") -> Entrant:
    """A peer whose worker has a fault."""
    program = folder / "with_fake.py"
    program.write_text(PROGRAM.format(programs=str(PROGRAMS)).replace("sys.argv.pop()", repr(fault)))
    peer = Peer(
        name="fake",
        program="with_pgmq.py",  # whose version is in the notes
        package="pgmq",
        left="SELECT count(*) FROM job WHERE NOT is_done",
        done="SELECT count(*) FROM job WHERE is_done",
        best="none",
        backlog=(3, 3),
        bulk=3,
    )
    return Entrant(peer, [sys.executable, str(program)])


@pytest.fixture(scope="module")
def backlog(postgres: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    """A backlog of three messages, of which each drain gets a copy."""
    entrant = fake(tmp_path_factory.mktemp("backlog"))
    with entrant.database(postgres) as database:
        entrant.publish(database, 3)
        yield database


class TestPins:
    """Which versions are installed."""

    @pytest.mark.parametrize("peer", ON_PYTHON, ids=lambda peer: peer.name)
    def test_every_python_package_is_pinned(self, peer: Peer) -> None:
        lines = peer.requirements.read_text().splitlines()

        assert [line for line in lines if not re.match(r"[\w.-]+==[\w.]+( ;|$)", line)] == []
        assert peer.version

    @pytest.mark.parametrize("peer", ON_NODE, ids=lambda peer: peer.name)
    def test_every_node_package_is_pinned_with_its_digest(self, peer: Peer) -> None:
        lock = json.loads((HERE / "package-lock.json").read_text())["packages"]

        assert lock[f"node_modules/{peer.package}"]["version"] == peer.version
        assert [name for name, package in lock.items() if name and not package.get("integrity")] == []


class TestSkipped:
    """A peer that cannot be installed is named, with the reason, and the others are measured."""

    def test_without_npm_those_for_node_are_skipped(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(environment.shutil, "which", lambda name: None)
        said: list[str] = []

        among = Field.install(said.append, ON_NODE)

        assert said == [
            "without graphile-worker: it needs Node, and there is no npm on PATH",
            "without pg-boss: it needs Node, and there is no npm on PATH",
        ]
        assert [entrant.peer.name for entrant in among.entrants] == ["pgrouse"]
        assert f"Without pg-boss {ON_NODE[1].version}: it needs Node, and there is no npm on PATH." in among.notes

    def test_a_registry_that_does_not_answer_is_a_reason(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        uv = tmp_path / "uv"
        uv.write_text("#!/bin/sh\necho 'error: no such host' >&2\nexit 2\n")
        uv.chmod(0o755)
        monkeypatch.setattr(environment, "FOLDER", tmp_path / "peers")
        monkeypatch.setattr(environment, "_uv", lambda: str(uv))

        with pytest.raises(Unavailable, match=r"^`uv venv` failed: error: no such host$"):
            environment.command(ON_PYTHON[0])


class TestCounts:
    """A figure counts only if each message was processed once, and nothing is left."""

    @pytest.mark.long
    @pytest.mark.parametrize(
        ("fault", "said"),
        [
            ("twice", "1 messages were processed twice, as again-2"),
            ("loses", "3 messages, but 2 are done"),
            ("dies", "its worker ended with 3 before its last message"),
        ],
    )
    def test_a_drain_that_is_wrong_is_refused(
        self, postgres: Postgres, machine: Machine, backlog: Database, tmp_path: Path, fault: str, said: str
    ) -> None:
        with pytest.raises(PeerFailed, match=said):
            drained(postgres, machine, fake(tmp_path, fault), backlog, DEFAULTS)

    @pytest.mark.long
    def test_a_bulk_publish_that_is_not_complete_is_refused(
        self, postgres: Postgres, machine: Machine, tmp_path: Path
    ) -> None:
        entrant = fake(tmp_path)
        with entrant.database(postgres) as template:
            entrant.publish(template, 1)

            with pytest.raises(PeerFailed, match="3 messages, but 4 are in its tables"):
                bulk(postgres, machine, entrant, template, 3)

    def test_who_fails_is_out_with_the_reason_and_the_others_go_on(self, tmp_path: Path) -> None:
        entrant = fake(tmp_path)
        among = Field([entrant])
        values = Rounds(among, rounds=2)

        def fail() -> float:
            raise PeerFailed("it lost one")

        for _ in range(2):
            values.attempt(entrant, ("fake", BEST), fail)
            values.attempt(entrant, ("fake", DEFAULTS), lambda: 1.0)

        assert values.complete() == {("fake", DEFAULTS): [1.0, 1.0]}
        assert "Without fake, best: PeerFailed: it lost one." in among.notes


class TestComparisons:
    """Each comparison at its smallest, with pgrouse and a peer of one table."""

    @pytest.fixture
    def among(self, tmp_path: Path) -> Field:
        return Field([Entrant(PGROUSE, environment.command(PGROUSE)), fake(tmp_path)])

    @pytest.mark.long
    def test_drains(self, postgres: Postgres, machine: Machine, among: Field) -> None:
        report = comparisons.drains(postgres, machine, among, rounds=1, share=0.02)

        assert [figure.what for figure in report.figures] == [
            "plain SQL",
            "pgrouse, defaults",
            "fake, defaults",
            "pgrouse, best",
            "fake, best",
        ]

    @pytest.mark.long
    def test_wakes(self, postgres: Postgres, machine: Machine, among: Field) -> None:
        among.entrants.pop()  # it works one time only

        report = comparisons.wakes(postgres, machine, among, rounds=1, messages=2)

        assert [figure.what for figure in report.figures] == [
            "pgrouse, from the call, p50",
            "pgrouse, from the call, p99",
            "pgrouse, from the return, p50",
            "pgrouse, from the return, p99",
        ]


class TestCommand:
    """`python -m bench --peers`."""

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["load"], "load: only with --peers"),
            (["--peers", "idle"], "idle: not with --peers"),
            (["--charts", "there"], "--charts needs --peers"),
        ],
    )
    def test_what_does_not_go_together_is_refused(self, arguments: list[str], said: str) -> None:
        output = CliRunner().invoke(main, arguments)

        assert output.exit_code == 2
        assert said in output.output


class TestChart:
    """The bars of a report."""

    REPORT = Report(
        "peers-drain",
        "",
        [
            Figure("plain SQL", "messages/s", [9.0]),
            Figure("b <&> c", "messages/s", [1.0, 3.0]),
            Figure("pgrouse", "", [4.0]),
        ],
    )

    def test_it_is_an_svg_with_a_bar_for_each_figure_the_best_on_top(self) -> None:
        svg = ET.fromstring(chart.draw(self.REPORT))

        bars = svg.findall("{http://www.w3.org/2000/svg}rect")
        assert [bar.get("class") for bar in bars] == ["limit", "pgrouse", "peer"]
        assert [text for each in svg.iter() if (text := each.text) in ("9.0", "4.0", "2.0")] == ["9.0", "4.0", "2.0"]
