"""What is examined: a configuration, and the database that it names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any

import psycopg

from pgrouse.client import search_path
from pgrouse.config.config import Config
from pgrouse.client.database import Database, hung_up_after
from pgrouse.config.dsn import redact, secrets

LONGEST_CONNECT = timedelta(seconds=5)
# What waits behind a lock says so instead of waiting with it.
LIMITS = (
    "SELECT pg_catalog.set_config('statement_timeout', %s, true), pg_catalog.set_config('lock_timeout', '1s', true)"
)
# A server that does not even time out gets so much longer before the line is cut.
GRACE_S = 2.0


class Subject:
    """What is examined. It changes nothing, and sets nothing that outlives a transaction: there may be a pooler in between.

    Args:
        settings: the configuration.
        within_s: how long each look may take, in seconds.
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
            DatabaseUnreachable: with the reason that libpq gave.
        """
        conn = self.database.connect_blocking("doctor")
        # Through a pooler a prepared statement would stay behind, and stand in somebody else's way.
        conn.prepare_threshold = None
        return conn

    def redacted(self, said: object) -> str:
        """Return what an error says on one line, without any password of the configuration."""
        given = self.settings.database
        return redact(" ".join(str(said).split()), secrets(given.dsn, given.listen_dsn))

    @property
    def conn(self) -> psycopg.Connection[Any]:
        """The connection to look through: the one there was, or a new one if that broke.

        Raises:
            DatabaseUnreachable: with the reason that libpq gave.
        """
        if self._conn is None or self._conn.closed:
            self._conn = self.connect()
        return self._conn

    def bounded(self, conn: psycopg.Connection[Any]) -> AbstractContextManager[None]:
        """Cut a connection if it does not answer in time, on which no time limit can be set."""
        return hung_up_after(self.within_s + GRACE_S, conn)

    @contextmanager
    def reading(self) -> Iterator[psycopg.Connection[Any]]:
        """Open a transaction that only reads, and not for long; it gives the connection."""
        with self.bounded(self.conn), self.conn.transaction():
            self.conn.execute("SET TRANSACTION READ ONLY")
            self.conn.execute(search_path.LOCAL)
            self.conn.execute(LIMITS, [f"{self.within_s * 1000:.0f}ms"])
            yield self.conn

    def close(self) -> None:
        """Close the connection."""
        if self._conn is not None:
            self._conn.close()
