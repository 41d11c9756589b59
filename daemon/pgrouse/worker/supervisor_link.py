"""The socket between a supervised daemon and its supervisor.

It carries the supervisor's orders, and shows when the supervisor is gone.

Orders are not signals: a signal to a process group reaches the daemon and its supervisor, and a signal that the
supervisor passes on must not count as a second one. Also, an order is never lost, whenever it comes during the daemon's
start or restart.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import stat
import threading
from collections.abc import Callable
from contextlib import suppress

from pgrouse.process.shutdown import Requester
from pgrouse.process.stop_signals import end_before_start

# The variable with the descriptor of the daemon's end. It is kept over an exec: a reload replaces the program and keeps
# the socket.
SOCKET_VARIABLE = "PGROUSE_SUPERVISOR"
# The order to stop without a signal, and the request for it.
DRAIN = b"\0"

OnOrder = Callable[[signal.Signals, Requester], None]


def order(which: signal.Signals) -> bytes:
    """Return the order that passes a signal on."""
    return bytes([which])


def send(link: socket.socket, what: bytes) -> None:
    """Send an order or a request; nothing if the other side is gone."""
    with suppress(OSError):
        link.send(what, socket.MSG_DONTWAIT)


class SupervisorLink:
    """The daemon's end of the socket.

    Args:
        link: the socket; None = the supervisor is gone.
    """

    def __init__(self, link: socket.socket | None) -> None:
        self._link = link
        self._lock = threading.Lock()
        self._has_begun = False

    @classmethod
    def of_process(cls) -> SupervisorLink:
        """Return the end that this process was given."""
        number = int(os.environ[SOCKET_VARIABLE])
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                return cls(socket.socket(fileno=number))
        return cls(None)

    def watch_start(self) -> None:
        """Let an order to stop end this process until `follow` is called.

        It does so even while the process imports a module of handlers.
        """
        threading.Thread(target=self._watch, name="supervisor", daemon=True).start()

    def follow(self, on_order: OnOrder) -> None:
        """Call this for each order on the event loop that runs, and once with SIGTERM when the supervisor is gone."""
        with self._lock:
            self._has_begun = True
        if self._link is None:
            on_order(signal.SIGTERM, Requester.END_OF_SUPERVISOR)
        else:
            asyncio.get_running_loop().add_reader(self._link, self._receive, self._link, on_order)

    def request_drain(self) -> None:
        """Ask the supervisor to stop all its daemons."""
        if self._link is not None:
            send(self._link, DRAIN)

    def _receive(self, link: socket.socket, on_order: OnOrder) -> None:
        orders = read(link)
        if orders == b"":
            asyncio.get_running_loop().remove_reader(link)
            on_order(signal.SIGTERM, Requester.END_OF_SUPERVISOR)
        for each in orders or b"":
            on_order(*_meaning(each))

    def _watch(self) -> None:
        while self._link is not None:
            # Do not use a blocking read: the event loop may have made the socket non-blocking.
            select.select([self._link], [], [])
            with self._lock:
                if self._has_begun:
                    return
                orders = read(self._link)
                for each in orders or DRAIN:
                    end_before_start(_meaning(each)[0])


def read(link: socket.socket) -> bytes | None:
    """Return what has come: b"" if the other side is gone, None if nothing has come."""
    try:
        return link.recv(64, socket.MSG_DONTWAIT)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def _meaning(order_byte: int) -> tuple[signal.Signals, Requester]:
    if order_byte == DRAIN[0]:
        return signal.SIGTERM, Requester.OPERATOR
    return signal.Signals(order_byte), Requester.SUPERVISOR
