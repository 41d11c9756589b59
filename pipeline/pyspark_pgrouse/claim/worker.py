"""Spark's driver as a worker: claims, extends, acknowledges and gives back. It knows nothing of Spark."""

from __future__ import annotations

import math
import os
import secrets
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from pgrouse.errors import DatabaseUnreachable, PgrouseError
from pyspark_pgrouse import connection
from pyspark_pgrouse.claim.in_flight import Hand, Pairs
from pyspark_pgrouse.claim.heartbeat import ClaimHeartbeat
from pyspark_pgrouse.claim.reconnecting_connection import ClaimLine
from pyspark_pgrouse.claim.claim_client import CLAIM_BYTES, CLAIM_ROWS, Claimed, ClaimStore, Place

if TYPE_CHECKING:
    from pyspark_pgrouse.options import Options

# A query that follows another one at once finds its name still taken, while that gives back what it held.
NAME_WITHIN_S = 10.0
# Who settles elsewhere must not settle by what was said of an earlier batch.
SHOWN_WITHIN_S = 60.0
SHOW_AGAIN_S = 0.1


class ConsumerTaken(PgrouseError):
    """Another query works under this consumer name."""


class ClaimWorker:
    """One worker, for one stream.

    Args:
        options: of the stream.
    """

    def __init__(self, options: Options) -> None:
        self.name = options.consumer or f"spark-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}"
        self.hand = Hand()
        self.done = 0
        self._options = options
        self._claims = ClaimLine(self._sign_on)
        # Of its own, so that what is done is settled while the next batch is claimed.
        self._settles = ClaimLine(self._connect)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="pgrouse-settle")
        self._heartbeat = ClaimHeartbeat(ClaimLine(self._connect, 0), self.hand, options.lock, self._sign)
        self._known: set[int] = set()
        self._acknowledged: tuple[int, ...] = ()
        self._place = Place()
        self._left: int | None = None
        self._shown: tuple[int, ...] = ()
        # Two threads sign; what the later one says must stand.
        self._signing = threading.Lock()

    def begin(self) -> None:
        """Take the name, enter the registry, and start the heartbeat.

        Raises:
            ConsumerTaken: another query has the name.
            DatabaseUnreachable: with the reason.
        """
        self._claims.ask(lambda _: None)
        self._heartbeat.start()

    def bound(self) -> None:
        """Claim no more messages from now on than are ready at this moment."""
        self._left = self._claims.ask(lambda store: store.count_ready(self._options.topics))

    def exchange(self, done: Sequence[int], rows: int) -> tuple[int, ...]:
        """Acknowledge the claims of the batch that is done, and claim the next batch.

        Returns:
            The claims that it has; empty if there is nothing to claim.
        """
        news = tuple(done) != self._acknowledged
        acknowledged = self._pool.submit(self._acknowledge, tuple(done)) if news else None
        rows = rows if self._left is None else min(rows, self._left)
        claimed = self._gather(rows, [])
        if acknowledged is not None:
            acknowledged.result()
            # What was still held then counted against limits, and kept ordered channels shut.
            claimed = self._gather(rows, claimed)
        self._left = None if self._left is None else self._left - len(claimed)
        claims = tuple(dict.fromkeys(each.claim_id for each in claimed))
        if claims:
            self._show(claims)
        return claims

    def recall(self, claims: Sequence[int]) -> list[tuple[int, int]]:
        """Return id and claim of all that these claims still hold; of a batch of an earlier process, too, which is extended at once."""
        if not self._known.issuperset(claims):
            self._take_over(claims)
            self._show(tuple(claims))
        return self.hand.pairs(claims)

    def end(self, *, give_back: bool) -> None:
        """Leave the registry and close the connections; give back what is in hand, or leave it to its locks."""
        from psycopg import Error  # noqa: PLC0415 - executors load it when they connect

        with suppress(Error, DatabaseUnreachable, RuntimeError):
            self._heartbeat.stop()
        with suppress(Error, DatabaseUnreachable):
            if give_back and (held := self.hand.pairs()):
                self._claims.ask(lambda store: store.release(held))
            self._claims.ask(ClaimStore.sign_off)
        self._pool.shutdown()
        for line in (self._claims, self._settles):
            line.close()

    def _acknowledge(self, claims: tuple[int, ...]) -> None:
        """Complete what is still held. What was settled otherwise, or was lost, is not."""
        held = self._settles.ask(lambda store: store.held(claims))
        lost = self._settles.ask(lambda store: store.complete(held)) if held else []
        self.hand.drop(claims)
        self.done += len(held) - len(lost)
        self._acknowledged = claims

    def _gather(self, rows: int, before: list[Claimed]) -> list[Claimed]:
        """Claim as often as it takes to have so many messages with those before, or all that there are."""
        claimed = list(before)
        most = self._options.max_bytes or math.inf
        size = sum(each.bytes for each in claimed)
        while len(claimed) < rows and size < most:
            wanted, limit = min(rows - len(claimed), CLAIM_ROWS), int(min(most - size, CLAIM_BYTES))
            part = self._claim(wanted, limit)
            claimed += part
            got = sum(each.bytes for each in part)
            size += got
            # Fewer than wanted, and not because of their size: there are no more, or a limit holds them back.
            if len(part) < wanted and got < limit:
                break
        return claimed

    def _claim(self, rows: int, size: int) -> list[Claimed]:
        options = self._options
        # If the answer was lost on the way, what was claimed is given back before this is asked again: see _sign_on.
        part = self._claims.ask(lambda store: store.claim(options.topics, rows, size, options.lock, self._place))
        self._place = self._place.after(part)
        self.hand.take((each.id, each.claim_id, each.lock_for_s, each.run_timeout_s) for each in part)
        self._known.update(each.claim_id for each in part)
        self._heartbeat.hurry()
        return part

    def _take_over(self, claims: Sequence[int]) -> None:
        held = self._claims.ask(lambda store: store.held(claims))
        lost = set(self._claims.ask(lambda store: store.heartbeat(held, self._options.lock)))
        pairs = Pairs.of(pair for pair in held if pair[0] not in lost)
        shown = self._claims.ask(lambda store: store.shown(pairs))
        lock_for_s = self._options.lock.total_seconds() if self._options.lock else None
        self.hand.take((id_, claim, lock_for_s or topic_s, timeout_s) for id_, claim, topic_s, timeout_s in shown)
        self._known.update(claims)
        self._heartbeat.hurry()

    def _connect(self, _again: bool) -> ClaimStore:
        return ClaimStore(connection.connect(self._options.dsn), self.name)

    def _sign_on(self, again: bool) -> ClaimStore:
        store = self._connect(again)
        try:
            self._enter(store)
            if again:
                store.release_forgotten(self.hand.pairs())
        except BaseException:
            store.conn.close()
            raise
        return store

    def _enter(self, store: ClaimStore) -> None:
        if not store.take_name(NAME_WITHIN_S):
            who = store.holder()
            at = f" in process {who[1]} on {who[0]}" if who else ""
            raise ConsumerTaken(
                f"consumer {self.name} works already{at}: stop that query, or give this one another name by option consumer"
            )
        store.sign_on(version("pgrouse"), self._options.topics, self._options.max_rows)

    def _show(self, claims: tuple[int, ...]) -> None:
        """Say in the registry which claims the batch has: for who settles it elsewhere.

        Raises:
            DatabaseUnreachable: somebody else held the worker's row all the time: a sign of life passes over it.
        """
        self._shown = claims
        deadline = time.monotonic() + SHOWN_WITHIN_S
        self._claims.ask(self._sign)
        while not self._claims.ask(lambda store: store.says(claims)):
            if time.monotonic() > deadline:
                raise DatabaseUnreachable(
                    f"somebody has held the row of {self.name} in messages.worker for {SHOWN_WITHIN_S:.0f} s: end that transaction"
                )
            time.sleep(SHOW_AGAIN_S)
            self._claims.ask(self._sign)

    def _sign(self, store: ClaimStore) -> Any:
        with self._signing:
            status = {"in_hand": len(self.hand), "done": self.done, "claims": list(self._shown)}
            if not store.sign(status):
                store.sign_on(version("pgrouse"), self._options.topics, self._options.max_rows)
                store.sign(status)
