"""The one connection of `pgrouse top`, in its own thread: it reads snapshots, runs actions, and reconnects."""

from __future__ import annotations

import queue
import random
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Event, Thread
from typing import Any, TypeVar

import psycopg

from pgrouse.cli.top.snapshot import QueueSnapshot, SnapshotReader
from pgrouse.client.connection.closed_after import closed_after
from pgrouse.client.connection.database import Database
from pgrouse.config.dsn import redact
from pgrouse.database.database_errors import explain
from pgrouse.errors import DatabaseUnreachable, PgrouseError

T = TypeVar("T")
BACKOFF_FIRST_S, BACKOFF_LAST_S = 0.5, 10.0
# Reading may take a fifth of the time at most: a slow database is read less often.
MAX_READ_SHARE = 5
# Longer than the limits of the statements: a server that does not answer until then is gone.
ANSWER_TIMEOUT_S = 40.0


@dataclass(frozen=True)
class ReadFailure:
    """The database cannot be read; it is retried.

    Attributes:
        why: one line, without passwords.
        is_disconnected: whether there is no connection.
        again_s: when it is tried again, in seconds from now.
    """

    why: str
    is_disconnected: bool
    again_s: float


class Feed(Thread):
    """Reads again and again.

    Args:
        db: where to connect.
        every_s: how often to read.
        on_update: called in this thread with each snapshot, with each trouble, and with the error that ends this
            thread.
    """

    def __init__(
        self, db: Database, every_s: float, on_update: Callable[[QueueSnapshot | ReadFailure | Exception], object]
    ) -> None:
        super().__init__(name="top-feed", daemon=True)
        self.db, self.every_s, self.on_update = db, every_s, on_update
        self._asked: queue.Queue[tuple[Callable[[psycopg.Connection], Any], Future[Any]] | None] = queue.Queue()
        self._stopped = Event()
        self._reader = SnapshotReader()
        self._conn: psycopg.Connection | None = None
        self._failures = 0

    def ask(self, do: Callable[[psycopg.Connection], T]) -> Future[T]:
        """Run a call on the connection; the future has its result or exception."""
        future: Future[T] = Future()
        self._asked.put((do, future))
        return future

    def stop(self) -> None:
        """End soon; what is being done is finished, or cut with the process."""
        self._stopped.set()
        self._asked.put(None)

    def run(self) -> None:
        """Read until stopped."""
        try:
            while not self._stopped.is_set():
                pause = self._read_once()
                self._serve_until(time.monotonic() + pause)
        except Exception as error:  # noqa: BLE001 - a bug: the view ends with it instead of standing still
            self.on_update(error)
        self._disconnect()

    def _read_once(self) -> float:
        """Read once; return how long to wait."""
        began = time.monotonic()
        try:
            conn = self._connected()
            with closed_after(ANSWER_TIMEOUT_S, conn):
                snapshot = self._reader.read(conn, began)
        except (psycopg.Error, PgrouseError) as error:
            return self._fail(error)
        self._failures = 0
        self.on_update(snapshot)
        if snapshot.dead is None:
            return 0.0
        return max(self.every_s, MAX_READ_SHARE * (time.monotonic() - began))

    def _connected(self) -> psycopg.Connection:
        if self._conn is None or self._conn.closed:
            self._conn = self.db.connect_blocking("top")
        return self._conn

    def _fail(self, error: Exception) -> float:
        self._failures += 1
        most = min(BACKOFF_LAST_S, BACKOFF_FIRST_S * 2 ** min(self._failures, 6))
        pause = random.uniform(most / 2, most)  # noqa: S311 - nothing to guess
        is_disconnected = isinstance(error, DatabaseUnreachable) or self._conn is None or self._conn.closed
        if is_disconnected:
            self._disconnect()
        self.on_update(ReadFailure(error_text(error), is_disconnected, pause))
        return pause

    def _serve_until(self, when: float) -> None:
        """Run calls until it is time to read; after a call, read at once."""
        while not self._stopped.is_set():
            try:
                asked = self._asked.get(timeout=max(0.0, when - time.monotonic()))
            except queue.Empty:
                return
            if asked is None:
                return
            self._do(*asked)
            self._reader.forget()
            when = time.monotonic()

    def _do(self, do: Callable[[psycopg.Connection], T], future: Future[T]) -> None:
        try:
            conn = self._connected()
            with closed_after(ANSWER_TIMEOUT_S, conn):
                future.set_result(do(conn))
        except Exception as error:  # noqa: BLE001 - the caller gets it
            future.set_exception(error)
        finally:
            del future  # the exception that it has got has this frame in its traceback

    def _disconnect(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            conn.close()


def error_text(error: BaseException) -> str:
    """Return the error and its fix on one line, as the commands print it."""
    return " ".join(redact(explain(error)[0]).split())
