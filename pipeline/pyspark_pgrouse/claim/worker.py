"""Spark's driver as a worker: claims, extends, acknowledges and gives back. It knows nothing of Spark."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from psycopg import Error

from pgrouse.errors import DatabaseUnreachable
from pyspark_pgrouse import connection
from pyspark_pgrouse.claim.claim_client import ClaimClient, ClaimCursor, ClaimedRow, claim_up_to
from pyspark_pgrouse.claim.heartbeat import ClaimHeartbeat
from pyspark_pgrouse.claim.in_flight import MessagesInFlight
from pyspark_pgrouse.claim.reconnecting_connection import ReconnectingConnection

if TYPE_CHECKING:
    from pyspark_pgrouse.options import Options


class ClaimWorker:
    """One worker, for one stream.

    Args:
        options: of the stream.
    """

    def __init__(self, options: Options) -> None:
        self.name = options.consumer or f"spark-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}"
        self.in_flight = MessagesInFlight()
        self.done = 0
        self._options = options
        self._claim_connection = ReconnectingConnection(self._connect_registered)
        # Of its own, so that what is done is settled while the next batch is claimed.
        self._settle_connection = ReconnectingConnection(self._connect)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="pgrouse-settle")
        self._heartbeat = ClaimHeartbeat(
            ReconnectingConnection(self._connect, 0), self.in_flight, options.lock, self._report_status
        )
        self._known: set[int] = set()
        self._acknowledged: tuple[int, ...] = ()
        self._cursor = ClaimCursor()
        self._remaining: int | None = None

    def start(self) -> None:
        """Take the name, enter the registry, and start the heartbeat.

        Raises:
            ConsumerTaken: another query has the name.
            DatabaseUnreachable: with the reason.
        """
        self._claim_connection.run(lambda _: None)
        self._heartbeat.start()

    def limit_to_ready(self) -> None:
        """Claim no more messages from now on than are ready at this moment."""
        self._remaining = self._claim_connection.run(lambda client: client.count_ready(self._options.topics))

    def acknowledge_and_claim(self, done: Sequence[int], rows: int) -> tuple[int, ...]:
        """Acknowledge the claims of the batch that is done, and claim the next batch.

        Returns:
            The claims that it has; empty if there is nothing to claim.
        """
        is_new = tuple(done) != self._acknowledged
        acknowledged = self._pool.submit(self._acknowledge, tuple(done)) if is_new else None
        rows = rows if self._remaining is None else min(rows, self._remaining)
        claimed = self._claim_batch(rows, [])
        if acknowledged is not None:
            acknowledged.result()
            # What was still held then counted against limits, and kept ordered channels shut.
            claimed = self._claim_batch(rows, claimed)
        self._remaining = None if self._remaining is None else self._remaining - len(claimed)
        return tuple(dict.fromkeys(each.claim_id for each in claimed))

    def restore(self, claims: Sequence[int]) -> list[tuple[int, int]]:
        """Return id and claim of all that these claims still hold; of a batch of an earlier process, too, which is extended at once."""
        if not self._known.issuperset(claims):
            self._take_over(claims)
        return self.in_flight.refs(claims)

    def stop(self, *, release: bool) -> None:
        """Leave the registry and close the connections; give back what is in flight, or leave it to its locks."""
        with suppress(Error, DatabaseUnreachable, RuntimeError):
            self._heartbeat.stop()
        with suppress(Error, DatabaseUnreachable):
            if release and (held := self.in_flight.refs()):
                self._claim_connection.run(lambda client: client.release(held))
            self._claim_connection.run(ClaimClient.deregister)
        self._pool.shutdown()
        for each in (self._claim_connection, self._settle_connection):
            each.close()

    def _acknowledge(self, claims: tuple[int, ...]) -> None:
        """Complete what is still held. What was settled otherwise, or was lost, is not."""
        held = self._settle_connection.run(lambda client: client.held(claims))
        lost = self._settle_connection.run(lambda client: client.complete(held)) if held else []
        self.in_flight.remove_claims(claims)
        self.done += len(held) - len(lost)
        self._acknowledged = claims

    def _claim_batch(self, rows: int, before: list[ClaimedRow]) -> list[ClaimedRow]:
        """Claim as often as it takes to have so many messages with those before, or all that there are."""
        return claim_up_to(self._claim, rows, self._options.max_bytes, before)

    def _claim(self, rows: int, size: int) -> list[ClaimedRow]:
        options = self._options
        # If the answer was lost on the way, what was claimed is given back before this is asked again: see _connect_registered.
        part = self._claim_connection.run(
            lambda client: client.claim(options.topics, rows, size, options.lock, self._cursor)
        )
        self._cursor = self._cursor.after(part)
        self.in_flight.add((each.id, each.claim_id, each.lock_duration_s, each.timeout_s) for each in part)
        self._known.update(each.claim_id for each in part)
        self._heartbeat.reschedule()
        return part

    def _take_over(self, claims: Sequence[int]) -> None:
        held = self._claim_connection.run(lambda client: client.held(claims))
        lost = set(self._claim_connection.run(lambda client: client.heartbeat(held, self._options.lock)))
        kept = [ref for ref in held if ref[0] not in lost]
        lock_times = self._claim_connection.run(lambda client: client.lock_times(kept))
        lock_duration_s = self._options.lock.total_seconds() if self._options.lock else None
        self.in_flight.add(
            (id_, claim, lock_duration_s or topic_s, timeout_s) for id_, claim, topic_s, timeout_s in lock_times
        )
        self._known.update(claims)
        self._heartbeat.reschedule()

    def _connect(self, _again: bool) -> ClaimClient:
        return ClaimClient(connection.connect(self._options.dsn), self.name)

    def _connect_registered(self, again: bool) -> ClaimClient:
        client = self._connect(again)
        try:
            client.enter(self._options.topics, self._options.max_rows)
            if again:
                client.release_orphaned(self.in_flight.refs())
        except BaseException:
            client.conn.close()
            raise
        return client

    def _report_status(self, client: ClaimClient) -> Any:
        status = {"in_flight": len(self.in_flight), "done": self.done}
        if not client.report_status(status):
            client.register(self._options.topics, self._options.max_rows)
            client.report_status(status)
