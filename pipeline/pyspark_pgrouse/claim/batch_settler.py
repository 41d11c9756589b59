"""The driver's side of a batch that is settled as soon as its function has returned: what it holds, and the settling of it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from pyspark_pgrouse import connection
from pyspark_pgrouse.claim.reconnecting_connection import ClaimLine
from pyspark_pgrouse.claim.outcome import Settled, settle_rows, settled_of
from pyspark_pgrouse.claim.claim_client import ClaimStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# Connections that settle side by side.
LINES = 2
ROWS = 5_000
CLAIMS = "SELECT w.status -> 'claims' FROM messages.worker AS w WHERE w.name = %s"
GONE = "SELECT NOT EXISTS (SELECT FROM messages.worker AS w WHERE w.name = %s)"

Row = tuple[int, int, str | None, str | None, Any]


class ClaimDesk:
    """Settles the batches of one consumer from the driver.

    The reader, which is another process, says in the registry which claims the batch has. Asking Spark for the ids would be to read all
    of the batch once more.

    Args:
        dsn: as the option of the format.
        consumer: the name under which the stream works.
    """

    def __init__(self, dsn: str | None, consumer: str) -> None:
        self._consumer = consumer
        self._lines = [ClaimLine(lambda _: ClaimStore(connection.connect(dsn), consumer)) for _ in range(LINES)]
        self._threads = ThreadPoolExecutor(LINES, thread_name_prefix="pgrouse-settle")

    def held(self, batch: DataFrame) -> list[tuple[int, int]]:
        """Return id and claim of what the batch still holds."""
        claims = self._claims()
        if claims is None:
            # Of a batch that is read again after a crash the reader hears when it is read, and not before.
            batch.select("id").take(1)
            claims = self._claims() or []
        return self._lines[0].ask(lambda store: store.held(claims))

    def _claims(self) -> list[int] | None:
        def ask(store: ClaimStore) -> list[int] | None:
            row = store.conn.execute(CLAIMS, [self._consumer]).fetchone()
            return row[0] if row and row[0] else None

        return self._lines[0].ask(ask)

    def settle(self, rows: Sequence[Row]) -> Settled:
        """Settle rows of id, claim_id, outcome, reason and after.

        Raises:
            DatabaseUnreachable: the server went away, and did not come back in time.
        """
        size = -(-len(rows) // LINES) or 1
        shares = [rows[at : at + size] for at in range(0, len(rows), size)]
        return settled_of(each for counted in self._threads.map(_settle, self._lines, shares) for each in counted)

    def is_gone(self) -> bool:
        """Whether the reader has left the registry: it has given back what it held, and ended."""
        return self._lines[0].ask(lambda store: store.conn.execute(GONE, [self._consumer]).fetchone() == (True,))

    def close(self) -> None:
        """Close the connections."""
        self._threads.shutdown()
        for line in self._lines:
            line.close()


def _settle(line: ClaimLine, rows: Sequence[Row]) -> list[tuple[str, int]]:
    return [
        counted
        for at in range(0, len(rows), ROWS)
        for counted in line.ask(lambda store, part=rows[at : at + ROWS]: settle_rows(store.conn, part))  # type: ignore[misc]
    ]
