"""Notifications to systemd (sd_notify): ready, stopping, reloading, alive. Does nothing outside of systemd."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping

# Lines are sent as datagrams to the socket in $NOTIFY_SOCKET: man 3 sd_notify. It holds ten unread datagrams; then a
# send waits.
SEND_TIMEOUT_S = 1.0


def notify(**lines: str | int) -> None:
    """Send lines such as READY=1, STATUS=text; ignore errors.

    A reader that does not read delays this by a second at most.
    """
    _send(lines, SEND_TIMEOUT_S)


def ping_watchdog() -> None:
    """Tell systemd that this process is alive. This does not wait: the next ping follows soon."""
    _send({"WATCHDOG": 1}, 0)


def _send(lines: Mapping[str, str | int], timeout_s: float) -> None:
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    text = "\n".join(f"{name}={value}" for name, value in lines.items())
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        sender.settimeout(timeout_s)
        try:
            sender.sendto(text.encode(), "\0" + address[1:] if address.startswith("@") else address)
        except OSError:
            return


def reloading() -> None:
    """Announce a reload; systemd requires the monotonic clock with it."""
    notify(RELOADING=1, MONOTONIC_USEC=time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000)


def watchdog_s() -> float | None:
    """Return the interval of watchdog notifications: half of what systemd allows. None = systemd does not watch."""
    allowed = os.environ.get("WATCHDOG_USEC")
    if allowed is None or os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    return int(allowed) / 2_000_000


class Watchdog:
    """Notifies systemd as often as systemd requests."""

    name = "watchdog"

    async def step(self) -> float:
        """Notify once."""
        ping_watchdog()
        return watchdog_s() or 3600.0

    async def reset(self) -> None:
        """Do nothing: there is no connection to close."""
