"""Signals that reach all processes of a daemon at once.

They come from Ctrl-C, the end of a terminal, `timeout`, and a service manager that signals a group.
"""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import termios
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.process import PGROUSE, Daemon, Fleet, Journal, execute
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

TOPICS = {
    "async": "holding:hold",
    "thread": "holding:hold_in_thread",
    "process": {"handler": "holding:hold_in_process", "isolation": "process", "max_attempts": 1},
}


class Terminal:
    """A terminal, whose session is led by the process that `begin` starts."""

    def __init__(self) -> None:
        self._ours, self._theirs = pty.openpty()
        self.is_nohup = False

    def begin(
        self, program: Path, *arguments: str, cwd: Path, env: Mapping[str, str], log: Path
    ) -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            return subprocess.Popen(
                [program, *arguments],
                cwd=cwd,
                env=env,
                stdin=self._theirs,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=self._control,  # noqa: PLW1509 - a system call, between the fork and the program
            )

    def _control(self) -> None:
        # Also if nohup runs these tests.
        signal.signal(signal.SIGHUP, signal.SIG_IGN if self.is_nohup else signal.SIG_DFL)
        fcntl.ioctl(self._theirs, termios.TIOCSCTTY, 0)

    def press_ctrl_c(self) -> None:
        os.write(self._ours, b"\x03")

    def close(self) -> None:
        for each in {self._ours, self._theirs}:
            os.close(each)
        self._ours = self._theirs = -1


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    found = Terminal()
    yield found
    if found._ours >= 0:
        found.close()


def run(fleet: Fleet, database: Database, processes: int, **settings: Any) -> Daemon:
    return fleet.launch(TOPICS, dsn=database.dsn, processes=processes, **settings)


def begun(queue: Queue, journal: Journal, gate: str, kinds: Iterable[str] = TOPICS) -> list[int]:
    """Publish a message of each kind, and return them when their handlers run and wait for this gate."""
    published = [queue.publish(topic, payload=f'"{gate}"') for topic in kinds]
    for each in published:
        journal.entry("start", each)
    return published


def results(queue: Queue, published: list[int]) -> list[tuple[str, int]]:
    archived = [queue.archived(each) for each in published]
    return [(each.result, each.attempts) for each in archived if each is not None]


def finishes_after(daemon: Daemon, which: str, processes: int, gate: str) -> None:
    """Wait until all its processes stop because of this signal, and let the handlers end then."""
    eventually(lambda: len(daemon.events("daemon.stopping", signal=which)) == processes)
    daemon.open_gate(gate)


ALL_SUCCEEDED = [("success", 1)] * len(TOPICS)
HARMED = {"shutdown.timed_out", "child.died", "process.exited", "attempt.failed", "message.lock_lost", "plain"}


def harm(daemon: Daemon) -> list[dict[str, Any]]:
    return [each for each in daemon.logged() if each["event"] in HARMED]


CODES = {signal.SIGTERM: 0, signal.SIGINT: 130}
# To one process alone SIGTERM is sent by tests/daemon/operation/test_stop.py; the other combinations in the long run.
SIGNALS = [
    pytest.param(signal.SIGTERM, os.killpg, 2, id="SIGTERM-group-2", marks=pytest.mark.executed),
    pytest.param(signal.SIGINT, os.kill, 2, id="SIGINT-leader-2"),
    pytest.param(signal.SIGINT, os.killpg, 1, id="SIGINT-group-1"),
    pytest.param(signal.SIGTERM, os.kill, 1, id="SIGTERM-leader-1", marks=pytest.mark.long),
    pytest.param(signal.SIGTERM, os.kill, 2, id="SIGTERM-leader-2", marks=pytest.mark.long),
    pytest.param(signal.SIGTERM, os.killpg, 1, id="SIGTERM-group-1", marks=pytest.mark.long),
    pytest.param(signal.SIGINT, os.kill, 1, id="SIGINT-leader-1", marks=pytest.mark.long),
    pytest.param(signal.SIGINT, os.killpg, 2, id="SIGINT-group-2", marks=pytest.mark.long),
]
RELOADS = [
    # As `systemctl reload` does: the supervisor passes it on.
    pytest.param(os.kill, 2, id="leader-2", marks=pytest.mark.executed),
    pytest.param(os.killpg, 1, id="group-1"),
    pytest.param(os.kill, 1, id="leader-1", marks=pytest.mark.long),
    pytest.param(os.killpg, 2, id="group-2", marks=pytest.mark.long),
]


@pytest.mark.parametrize(("which", "send", "processes"), SIGNALS)
def test_a_signal_lets_all_handlers_end_whichever_processes_it_reaches(
    fleet: Fleet,
    database: Database,
    queue: Queue,
    journal: Journal,
    which: signal.Signals,
    send: Callable[[int, int], None],
    processes: int,
) -> None:
    daemon = run(fleet, database, processes)
    published = begun(queue, journal, "gate")
    eventually(lambda: len(daemon.events("daemon.started")) == processes)

    send(daemon.pid, which)
    finishes_after(daemon, which.name, processes, "gate")

    assert daemon.exit_code() == CODES[which]
    assert results(queue, published) == ALL_SUCCEEDED
    assert harm(daemon) == []


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("send", "processes"), RELOADS)
def test_sighup_reloads_and_the_stop_after_it_is_no_second_signal(
    fleet: Fleet,
    database: Database,
    queue: Queue,
    journal: Journal,
    send: Callable[[int, int], None],
    processes: int,
) -> None:
    # A signal that is sent to the leader alone does not reach the children of handlers.
    kinds = list(TOPICS) if send is os.killpg else ["async", "thread"]
    daemon = run(fleet, database, processes)
    before = begun(queue, journal, "first", kinds)
    eventually(lambda: len(daemon.events("daemon.started")) == processes)

    send(daemon.pid, signal.SIGHUP)
    finishes_after(daemon, "SIGHUP", processes, "first")
    eventually(lambda: len(daemon.events("daemon.started")) == 2 * processes)
    after = begun(queue, journal, "second", kinds)
    send(daemon.pid, signal.SIGHUP)
    eventually(lambda: len(daemon.events("daemon.stopping", signal="SIGHUP")) == 2 * processes)
    send(daemon.pid, signal.SIGTERM)
    daemon.open_gate("second")

    assert daemon.exit_code() == 0
    assert results(queue, [*before, *after]) == 2 * len(kinds) * [("success", 1)]
    assert harm(daemon) == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("act", "which", "code", "processes"),
    [
        pytest.param(Terminal.press_ctrl_c, "SIGINT", 130, 2, id="ctrl_c-2"),
        pytest.param(Terminal.close, "SIGTERM", 0, 1, id="closed-1"),
        pytest.param(Terminal.press_ctrl_c, "SIGINT", 130, 1, id="ctrl_c-1", marks=pytest.mark.long),
        pytest.param(Terminal.close, "SIGTERM", 0, 2, id="closed-2", marks=pytest.mark.long),
    ],
)
def test_a_terminal_that_sends_ctrl_c_or_is_closed_lets_all_handlers_end(
    fleet: Fleet,
    database: Database,
    queue: Queue,
    journal: Journal,
    terminal: Terminal,
    act: Callable[[Terminal], None],
    which: str,
    code: int,
    processes: int,
) -> None:
    fleet.begin = terminal.begin
    daemon = run(fleet, database, processes)
    published = begun(queue, journal, "gate")
    eventually(lambda: len(daemon.events("daemon.started")) == processes)

    act(terminal)
    finishes_after(daemon, which, processes, "gate")

    assert daemon.exit_code() == code
    assert results(queue, published) == ALL_SUCCEEDED
    assert harm(daemon) == []


@pytest.mark.long
def test_a_daemon_that_nohup_has_started_outlives_its_terminal_and_still_reloads(
    fleet: Fleet, database: Database, terminal: Terminal
) -> None:
    fleet.begin, terminal.is_nohup = terminal.begin, True
    daemon = fleet.launch({"job": "work:echo"}, dsn=database.dsn)
    daemon.event("daemon.started")

    terminal.close()

    def reloads() -> bool:
        # One that comes too soon after that of the terminal is the same one.
        daemon.send(signal.SIGHUP)
        return len(daemon.events("daemon.started")) > 1

    eventually(reloads, every_s=1)
    assert {each["signal"] for each in daemon.events("daemon.stopping")} == {"SIGHUP"}
    assert daemon.alive


@pytest.mark.long
def test_a_second_signal_to_the_group_ends_all_processes_at_once(
    fleet: Fleet, database: Database, queue: Queue, journal: Journal
) -> None:
    daemon = run(fleet, database, 2, shutdown_timeout="1h")
    published = begun(queue, journal, "gate")
    eventually(lambda: len(daemon.events("daemon.started")) == 2)
    os.killpg(daemon.pid, signal.SIGTERM)
    eventually(lambda: len(daemon.events("daemon.stopping")) == 2)

    os.killpg(daemon.pid, signal.SIGTERM)

    assert daemon.exit_code() == 0
    assert [queue.message(each).attempts for each in published] == [0, 0, 0]


@pytest.mark.long
def test_an_operator_who_drains_and_then_stops_the_service_interrupts_no_handler(
    fleet: Fleet, database: Database, queue: Queue, journal: Journal
) -> None:
    daemon = run(fleet, database, 2, shutdown_timeout="1h")
    published = begun(queue, journal, "gate")
    eventually(lambda: queue.value("SELECT count(*) FROM messages.worker") == 2)
    queue.value("SELECT messages.drain_worker(name) FROM messages.worker ORDER BY name LIMIT 1")
    eventually(lambda: len(daemon.events("daemon.stopping", by="operator")) == 2)

    daemon.send(signal.SIGTERM)
    daemon.open_gate()

    assert daemon.exit_code() == 0
    assert results(queue, published) == ALL_SUCCEEDED


@pytest.mark.long
def test_one_of_several_processes_that_is_signalled_alone_ends_in_order_and_is_replaced(
    fleet: Fleet, database: Database, queue: Queue, journal: Journal
) -> None:
    daemon = run(fleet, database, 2)
    published = begun(queue, journal, "gate")
    pid = journal.entry("start", published[0])["pid"]

    os.kill(pid, signal.SIGTERM)
    daemon.event("daemon.stopping")
    daemon.open_gate()

    assert daemon.event("process.exited")["exit_code"] == 0
    eventually(lambda: len(daemon.events("daemon.started")) == 3)
    assert results(queue, published) == ALL_SUCCEEDED
    assert daemon.stop() == 0


@pytest.mark.long
@pytest.mark.parametrize("isolation", ["none", "process"])
def test_a_handler_can_end_processes_of_its_own_by_sigterm(
    fleet: Fleet, database: Database, queue: Queue, journal: Journal, isolation: str
) -> None:
    topics = {"job": {"handler": "starting:end_own_processes", "isolation": isolation}}
    daemon = fleet.launch(topics, dsn=database.dsn)
    published = queue.publish("job")

    assert journal.entry("ended", published)["codes"] == [-signal.SIGTERM] * 2
    eventually(lambda: queue.archived(published))
    assert daemon.events("daemon.stopping") == []
    assert daemon.stop() == 0


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def catches_sigterm(pid: int) -> bool:
    """Whether the process has reached its entry."""
    return has_signal(pid, "SigCgt", signal.SIGTERM)


def has_signal(pid: int, which_set: str, which: signal.Signals) -> bool:
    """Whether a signal is in one of the sets that the kernel shows of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = next(line for line in lines if line.startswith(which_set))
    return bool(int(found.split()[1], 16) >> (which - 1) & 1)


def uses(pid: int, library: str) -> bool:
    return library in Path(f"/proc/{pid}/maps").read_text()


# Marks of a process at points of its start, from the first at which it takes signals.
POINTS: dict[str, Callable[[Daemon], object]] = {
    "entry": lambda daemon: catches_sigterm(daemon.pid),
    "imports": lambda daemon: uses(daemon.pid, "psycopg"),
    "processes": lambda daemon: catches_sigterm(daemon.pid) and children(daemon.pid),
    "entry of a process": lambda daemon: any(catches_sigterm(each) for each in children(daemon.pid)),
    "imports of a process": lambda daemon: any(uses(each, "psycopg") for each in children(daemon.pid)),
}


# While it is alone, the leader is the group.
STOPS = [
    pytest.param(send, point, id=f"{name}-{point}", marks=[pytest.mark.long] * is_long)
    for name, send in (("group", os.killpg), ("leader", os.kill))
    for point in POINTS
    for is_long in [(name == "leader") != ("process" in point)]
]


@pytest.mark.executed
@pytest.mark.parametrize(("send", "point"), STOPS)
def test_a_stop_at_any_point_of_the_start_is_a_regular_end(
    fleet: Fleet, database: Database, send: Callable[[int, int], None], point: str
) -> None:
    daemon = run(fleet, database, 2 if "process" in point else 1)
    eventually(lambda: POINTS[point](daemon), every_s=0.001)

    send(daemon.pid, signal.SIGTERM)

    assert daemon.exit_code() == 0
    assert harm(daemon) == []


@pytest.mark.long
@pytest.mark.parametrize(("which", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130), (signal.SIGHUP, 0)])
def test_a_web_server_that_is_signalled_at_its_start_ends_in_order(
    tmp_path: Path, database: Database, which: signal.Signals, code: int
) -> None:
    environ = {**os.environ, "PGROUSE_DSN": database.dsn}
    web = execute(PGROUSE, "web", "--listen", "127.0.0.1:0", cwd=tmp_path, env=environ, log=tmp_path / "log")
    try:
        eventually(lambda: catches_sigterm(web.pid), every_s=0.001)

        web.send_signal(which)

        assert web.wait(60) == code
    finally:
        web.kill()
