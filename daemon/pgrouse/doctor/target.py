"""The target of the doctor: a configuration, and the database that it names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any

import psycopg

from pgrouse.client.connection.closed_after import closed_after
from pgrouse.client.connection.database import Database
from pgrouse.config.config import Config
from pgrouse.config.dsn import redact, secrets
from pgrouse.database import session_settings

LONGEST_CONNECT = timedelta(seconds=5)
# A statement that waits for a lock fails after this time.
LIMITS = (
    "SELECT pg_catalog.set_config('statement_timeout', %s, true), pg_catalog.set_config('lock_timeout', '1s', true)"
)
# How much longer a server that ignores its timeout has before the connection is closed.
GRACE_S = 2.0


class DoctorTarget:
    """The target of the checks.

    It changes nothing, and makes no setting that outlives a transaction, because there may be a pooler.

    Args:
        settings: the configuration.
        within_s: the time limit of each check, in seconds.
    """

    def __init__(self, settings: Config, within_s: float) -> None:
        self.settings = settings
        self.within_s = within_s
        timeout = min(settings.database.connect_timeout, LONGEST_CONNECT)
        self.database = Database(settings.database.model_copy(update={"connect_timeout": timeout}), "doctor")
        self._conn: psycopg.Connection[Any] | None = None

    def connect(self) -> psycopg.Connection[Any]:
        """Open an autocommit connection that the caller closes.

        Raises:
            DatabaseUnreachable: with libpq's reason.
        """
        conn = self.database.connect_blocking("doctor")
        # Through a pooler a prepared statement would remain in the session and disturb other clients.
        conn.prepare_threshold = None
        return conn

    def redacted(self, said: object) -> str:
        """Return the text of an error on one line, without the passwords of the configuration."""
        given = self.settings.database
        return redact(" ".join(str(said).split()), secrets(given.dsn, given.listen_dsn))

    @property
    def conn(self) -> psycopg.Connection[Any]:
        """The connection of the checks; a new one if the last one broke.

        Raises:
            DatabaseUnreachable: with libpq's reason.
        """
        if self._conn is None or self._conn.closed:
            self._conn = self.connect()
        return self._conn

    def bounded(self, conn: psycopg.Connection[Any]) -> AbstractContextManager[None]:
        """Close a connection if it does not answer in time: LISTEN accepts no time limit."""
        return closed_after(self.within_s + GRACE_S, conn)

    @contextmanager
    def reading(self) -> Iterator[psycopg.Connection[Any]]:
        """Yield the connection in a read-only transaction with a time limit."""
        with self.bounded(self.conn), self.conn.transaction():
            self.conn.execute("SET TRANSACTION READ ONLY")
            self.conn.execute(session_settings.LOCAL)
            self.conn.execute(LIMITS, [f"{self.within_s * 1000:.0f}ms"])
            yield self.conn

    def close(self) -> None:
        """Close the connection."""
        if self._conn is not None:
            self._conn.close()
