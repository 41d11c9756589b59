"""The driver's side of a batch that is settled as soon as its function has returned: what it holds, and the settling of it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from pyspark_pgrouse import connection
from pyspark_pgrouse.claim.claim_client import ClaimClient
from pyspark_pgrouse.claim.outcome import Row, SettledCounts, settle_rows, sum_results
from pyspark_pgrouse.claim.reconnecting_connection import ReconnectingConnection

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Connections that settle side by side.
CONNECTIONS = 2
ROWS = 5_000
CLAIMS = "SELECT w.status -> 'claims' FROM messages.worker AS w WHERE w.name = %s"
READER_LEFT = "SELECT NOT EXISTS (SELECT FROM messages.worker AS w WHERE w.name = %s)"


class BatchSettler:
    """Settles the batches of one consumer from the driver.

    The reader, which is another process, writes into the registry which claims the batch has. To ask Spark for the ids would read the whole
    batch a second time.

    Args:
        dsn: as the option of the format.
        consumer: the name under which the stream works.
    """

    def __init__(self, dsn: str | None, consumer: str) -> None:
        self._consumer = consumer
        self._connections = [
            ReconnectingConnection(lambda _: ClaimClient(connection.connect(dsn), consumer)) for _ in range(CONNECTIONS)
        ]
        self._threads = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="pgrouse-settle")

    def held(self, batch: DataFrame) -> list[tuple[int, int]]:
        """Return id and claim of what the batch still holds."""
        claims = self._claims()
        if claims is None:
            # After a crash the reader learns the claims of the batch only when the batch is read again.
            batch.select("id").take(1)
            claims = self._claims() or []
        return self._connections[0].run(lambda client: client.held(claims))

    def _claims(self) -> list[int] | None:
        def run(client: ClaimClient) -> list[int] | None:
            row = client.conn.execute(CLAIMS, [self._consumer]).fetchone()
            return row[0] if row and row[0] else None

        return self._connections[0].run(run)

    def settle(self, rows: Sequence[Row]) -> SettledCounts:
        """Settle messages.

        Raises:
            DatabaseUnreachable: the server went away, and did not come back in time.
        """
        size = -(-len(rows) // CONNECTIONS) or 1
        shares = [rows[at : at + size] for at in range(0, len(rows), size)]
        return sum_results(
            each for counted in self._threads.map(_settle, self._connections, shares) for each in counted
        )

    def has_reader_left(self) -> bool:
        """Whether the reader has left the registry: it has given back what it held, and ended."""
        return self._connections[0].run(
            lambda client: client.conn.execute(READER_LEFT, [self._consumer]).fetchone() == (True,)
        )

    def close(self) -> None:
        """Close the connections."""
        self._threads.shutdown()
        for claim_connection in self._connections:
            claim_connection.close()


def _settle(claim_connection: ReconnectingConnection, rows: Sequence[Row]) -> list[tuple[str, int]]:
    return [
        counted
        for at in range(0, len(rows), ROWS)
        for counted in claim_connection.run(lambda client, part=rows[at : at + ROWS]: settle_rows(client.conn, part))  # type: ignore[misc]
    ]
