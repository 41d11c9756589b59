"""Settles from the driver: the rest of a batch whose function raised an exception."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_pgrouse.claim.claim_client import ClaimClient
from pyspark_pgrouse.claim.claim_ref import ClaimRef
from pyspark_pgrouse.claim.outcome import Row, SettledCounts, settle_in_parts, sum_results
from pyspark_pgrouse.claim.reconnecting_connection import ReconnectingConnection
from pyspark_pgrouse.connection import connection


class BatchSettler:
    """Settles parts of batches, on one connection.

    Args:
        dsn: as in `connection.connect`.
        consumer: the name under which their messages are locked.
    """

    def __init__(self, dsn: str | None, consumer: str) -> None:
        self._connection = ReconnectingConnection(
            lambda: ClaimClient(connection.connect(dsn), consumer), was_there=True
        )

    def held(self, claims: Sequence[int]) -> list[ClaimRef]:
        """Return id and claim of the messages that these claims still hold, by id."""
        return self._connection.run(lambda client: client.held(claims))

    def settle(self, rows: Sequence[Row]) -> SettledCounts:
        """Settle messages.

        Raises:
            DatabaseUnreachable: the server went away, and did not come back in time.
        """
        return sum_results(settle_in_parts(self._connection, rows))

    def release_orphaned(self, known: Sequence[ClaimRef]) -> None:
        """Release messages that are locked under the consumer's name and are none of these.

        A task claimed them and could not report it.
        """
        self._connection.run(lambda client: client.release_orphaned(known))

    def count_ready(self, topics: Sequence[str]) -> int:
        """Return how many messages of these topics are ready."""
        return self._connection.run(lambda client: client.count_ready(topics))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
