"""A connection that is kept open, and opened again when it breaks."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from psycopg import OperationalError

from pgrouse.errors import DatabaseUnreachable
from pyspark_pgrouse.claim.claim_client import ClaimClient

T = TypeVar("T")

# A server that restarts is usually back by then. A longer wait would hide why the job makes no progress.
RETRY_TIMEOUT_S = 60.0


class ReconnectingConnection:
    """One connection of a consumer.

    Args:
        open_: opens the connection.
        retry_timeout_s: how many seconds to wait for a server that is away, if it was reached before.
        was_there: whether the server was reached before, by another connection.
    """

    def __init__(
        self, open_: Callable[[], ClaimClient], retry_timeout_s: float = RETRY_TIMEOUT_S, *, was_there: bool = False
    ) -> None:
        self._open = open_
        self._retry_timeout_s = retry_timeout_s
        self._client: ClaimClient | None = None
        self._was_there = was_there

    def run(self, function: Callable[[ClaimClient], T]) -> T:
        """Return what the function returns.

        If the connection breaks, the function is called again, so it must be idempotent.

        Raises:
            DatabaseUnreachable: the server was never reached, or did not come back in time.
        """
        deadline = time.monotonic() + self._retry_timeout_s
        while True:
            try:
                return function(self._connected())
            except (OperationalError, DatabaseUnreachable) as error:
                again = self._may_try_again(error, deadline)
                self._close_if_broken()
                if not again:
                    raise
            time.sleep(random.uniform(0.05, 0.5))  # noqa: S311 - not all at once

    def _may_try_again(self, error: Exception, deadline: float) -> bool:
        if time.monotonic() > deadline or not self._was_there:
            return False
        return isinstance(error, DatabaseUnreachable) or self._client is None or self._client.conn.broken

    def _connected(self) -> ClaimClient:
        if self._client is None:
            self._client = self._open()
            self._was_there = True
        return self._client

    def _close_if_broken(self) -> None:
        if self._client is not None and self._client.conn.broken:
            self.close()

    def close(self) -> None:
        """Close the connection; the next call opens another one."""
        client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):
                client.conn.close()
