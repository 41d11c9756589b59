"""Ends the wait for an answer on a connection after a time."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg


@contextmanager
def closed_after(seconds: float, conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> Iterator[None]:
    """Close the connection if the block takes longer, so that waiting for an answer on it ends with an error."""
    timer = threading.Timer(seconds, _close_socket, [conn])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _close_socket(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(conn.fileno())) as wire:
        wire.shutdown(socket.SHUT_RDWR)
