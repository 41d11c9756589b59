"""A connection that is kept, and made anew when the server went away."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from pgrouse.errors import DatabaseUnreachable
from pyspark_pgrouse.claim.claim_client import ClaimStore

T = TypeVar("T")

# A server that restarts is back by then. Longer, and nobody would know why the query stands still.
PATIENCE_S = 60.0


class ClaimLine:
    """One connection of a claim stream.

    Args:
        open_: makes the connection, and says by its argument whether it is made anew.
        patience_s: for how many seconds a server that is away is waited for, once it was there.
    """

    def __init__(self, open_: Callable[[bool], ClaimStore], patience_s: float = PATIENCE_S) -> None:
        self._open = open_
        self._patience_s = patience_s
        self._store: ClaimStore | None = None
        self._was_there = False

    def ask(self, question: Callable[[ClaimStore], T]) -> T:
        """Return the answer to a question. If the connection breaks it is asked again, so it must be one that may be.

        Raises:
            DatabaseUnreachable: the server was never there, or did not come back in time.
        """
        from psycopg import OperationalError  # noqa: PLC0415 - executors load it when they connect

        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                return question(self._connected())
            except (OperationalError, DatabaseUnreachable) as error:
                again = self._may_try_again(error, deadline)
                self._close_if_broken()
                if not again:
                    raise
            time.sleep(random.uniform(0.05, 0.5))  # noqa: S311 - not all at once

    def _may_try_again(self, error: Exception, deadline: float) -> bool:
        if time.monotonic() > deadline or not self._was_there:
            return False
        return isinstance(error, DatabaseUnreachable) or self._store is None or self._store.conn.broken

    def _connected(self) -> ClaimStore:
        if self._store is None:
            self._store = self._open(self._was_there)
            self._was_there = True
        return self._store

    def _close_if_broken(self) -> None:
        if self._store is not None and self._store.conn.broken:
            self.close()

    def close(self) -> None:
        """Close the connection; the next question opens another one."""
        store, self._store = self._store, None
        if store is not None:
            with suppress(Exception):
                store.conn.close()
