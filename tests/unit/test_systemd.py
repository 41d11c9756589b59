"""sd_notify, with a real socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgrouse.process import systemd


@pytest.fixture
def receiver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The socket on which systemd would listen."""
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(path)
        listener.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        yield listener


def test_lines_are_sent_as_one_datagram(receiver: socket.socket) -> None:
    systemd.notify(READY=1, STATUS="working 3 topics")

    assert receiver.recv(1000) == b"READY=1\nSTATUS=working 3 topics"


def test_an_abstract_socket_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"pgrouse-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0{name}")
        listener.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")

        systemd.notify(WATCHDOG=1)

        assert listener.recv(1000) == b"WATCHDOG=1"


def test_a_reload_is_announced_with_the_monotonic_clock(receiver: socket.socket) -> None:
    systemd.reloading()

    lines = dict(line.split("=") for line in receiver.recv(1000).decode().splitlines())
    assert lines["RELOADING"] == "1"
    assert int(lines["MONOTONIC_USEC"]) > 0


@pytest.mark.parametrize("address", [None, "", "/nowhere/at/all"])
def test_nothing_is_sent_without_a_socket(monkeypatch: pytest.MonkeyPatch, address: str | None) -> None:
    if address is None:
        monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    else:
        monkeypatch.setenv("NOTIFY_SOCKET", address)

    systemd.notify(READY=1)


@pytest.mark.parametrize(
    ("allowed", "pid", "every"),
    [("30000000", None, 15.0), ("30000000", "own", 15.0), ("30000000", "1", None), (None, None, None)],
)
def test_the_watchdog_interval_is_half_of_the_requested_and_only_for_this_process(
    monkeypatch: pytest.MonkeyPatch, allowed: str | None, pid: str | None, every: float | None
) -> None:
    for name, value in (("WATCHDOG_USEC", allowed), ("WATCHDOG_PID", str(os.getpid()) if pid == "own" else pid)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)

    assert systemd.watchdog_s() == every
