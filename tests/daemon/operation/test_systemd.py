"""What a daemon reports to systemd."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.daemon.process import Daemon, Fleet
from tests.server.deadline import eventually
from tests.sql.queue import Queue

Start = Callable[..., Daemon]


class NotifySocket:
    """The socket on which systemd would listen, and the lines it has received."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[str] = []
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.socket.bind(str(path))

    def is_full(self) -> bool:
        """Whether no more lines fit in."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender:
            try:
                sender.sendto(b"WATCHDOG=1", str(self.path))
            except BlockingIOError:
                return True
        return False

    def has_received(self, line: str) -> bool:
        try:
            while True:
                self.lines += self.socket.recv(4096).decode().splitlines()
        except BlockingIOError:
            return line in self.lines


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[NotifySocket]:
    notified = NotifySocket(tmp_path / "notify")
    yield notified
    notified.socket.close()


@pytest.mark.long
def test_systemd_is_notified_that_the_daemon_is_ready_alive_reloading_and_stopping(
    start: Start, systemd: NotifySocket
) -> None:
    daemon = start({"job": "work:echo"}, environ={"NOTIFY_SOCKET": str(systemd.path), "WATCHDOG_USEC": "400000"})

    eventually(lambda: systemd.has_received("READY=1"))
    eventually(lambda: systemd.has_received("STATUS=working 1 topics"))
    eventually(lambda: systemd.lines.count("WATCHDOG=1") >= 3 or systemd.has_received("nothing new"))
    systemd.lines.clear()
    daemon.send(signal.SIGHUP)
    eventually(lambda: systemd.has_received("RELOADING=1"))
    eventually(lambda: systemd.has_received("READY=1"))
    eventually(lambda: len(daemon.events("daemon.started")) == 2)
    assert not systemd.has_received("STOPPING=1")
    daemon.send(signal.SIGTERM)

    eventually(lambda: systemd.has_received("STOPPING=1"))
    assert daemon.exit_code() == 0


@pytest.mark.long
def test_a_daemon_whose_notifications_nobody_reads_works_and_stops(
    start: Start, queue: Queue, systemd: NotifySocket
) -> None:
    daemon = start({"job": "work:echo"}, environ={"NOTIFY_SOCKET": str(systemd.path), "WATCHDOG_USEC": "20000"})
    eventually(systemd.is_full)

    published = queue.publish("job")

    assert eventually(lambda: queue.archived(published)).result == "success"
    assert daemon.stop() == 0


def test_systemd_is_notified_that_the_daemon_is_alive_without_a_database(fleet: Fleet, systemd: NotifySocket) -> None:
    nowhere = f"host={systemd.path.parent}"

    daemon = fleet.launch(
        {"job": "work:echo"},
        dsn=nowhere,
        environ={"NOTIFY_SOCKET": str(systemd.path), "WATCHDOG_USEC": "400000"},
    )

    eventually(lambda: systemd.has_received("STATUS=waiting for the database"))
    eventually(lambda: systemd.lines.count("WATCHDOG=1") >= 3 or systemd.has_received("nothing new"))
    assert daemon.stop() == 0
