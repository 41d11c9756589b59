"""sd_notify, with a real socket."""

from __future__ import annotations

import os
import socket

import pytest

from pgrouse.process import systemd


def test_an_abstract_socket_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"pgrouse-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0{name}")
        listener.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")

        systemd.notify(WATCHDOG=1)

        assert listener.recv(1000) == b"WATCHDOG=1"


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
