"""Notifications to systemd (sd_notify): ready, stopping, reloading, alive. Does nothing outside of systemd."""

from __future__ import annotations

import os
import socket
import time

# Datagrams of lines to the socket in $NOTIFY_SOCKET: man 3 sd_notify.


def notify(**lines: str | int) -> None:
    """Send lines such as READY=1, STATUS=text; errors are ignored."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    text = "\n".join(f"{name}={value}" for name, value in lines.items())
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        try:
            sender.sendto(text.encode(), "\0" + address[1:] if address.startswith("@") else address)
        except OSError:
            return


def reloading() -> None:
    """Announce a reload; systemd requires the monotonic clock with it."""
    notify(RELOADING=1, MONOTONIC_USEC=time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000)


def watchdog_s() -> float | None:
    """Return how often to notify the watchdog: half of what systemd allows. None = it does not watch."""
    allowed = os.environ.get("WATCHDOG_USEC")
    if allowed is None or os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    return int(allowed) / 2_000_000
