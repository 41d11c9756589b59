"""A server that several processes use at once: the first one starts it, and the last one stops it."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

from pgrouse.devdb import os_user
from pgrouse.devdb.choice import DatabaseServer
from pgrouse.devdb.server import PrivateServer


@contextmanager
def shared(name: str, server: DatabaseServer) -> Iterator[bool]:
    """Start a server unless it runs; stop it when the last process that is in this block leaves it.

    Of a server that was killed, the data are deleted first.

    A process that is killed has left it: the kernel releases its lock. The next one that uses the server stops it.

    Args:
        name: the purpose, as of `find`.
        server: what `find` returned for it.

    Yields:
        Whether no other process used the server at that moment.
    """
    with (os_user.cache_folder() / f"{name}.users").open("a") as users:
        with _alone(name):
            is_first = _is_alone(users)
            fcntl.flock(users, fcntl.LOCK_SH)
            if is_first and isinstance(server, PrivateServer) and server.was_killed():
                server.remove()  # with settings that are fast and not safe, its data may be broken
            server.start()
        try:
            yield is_first
        finally:
            with _alone(name):
                fcntl.flock(users, fcntl.LOCK_UN)
                if _is_alone(users):
                    server.stop()


def _is_alone(users: IO[str]) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """Keep out other processes that begin or end to use the server."""
    with (os_user.cache_folder() / f"{name}.use").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
