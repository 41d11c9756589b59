"""The heartbeat of a claim stream: extends the locks of what is in hand while Spark works on it, from a thread of the reader's process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from pgrouse.errors import DatabaseUnreachable
from pyspark_pgrouse.claim.in_flight import Hand
from pyspark_pgrouse.claim.reconnecting_connection import ClaimLine
from pyspark_pgrouse.claim.claim_client import ClaimStore

SEEN_EVERY_S = 5.0
# After a failure. The locks last for two more thirds.
AGAIN_AFTER_S = 0.5


class ClaimHeartbeat(threading.Thread):
    """The heartbeat of one stream.

    Args:
        line: a connection that nobody else uses, without patience: a beat that fails is sent again by the next one.
        hand: what to extend. What comes back as held no more leaves it.
        lock: for how long; None = as the topics have it.
        sign: gives a sign of life through the connection.
    """

    def __init__(self, line: ClaimLine, hand: Hand, lock: timedelta | None, sign: Callable[[ClaimStore], Any]) -> None:
        super().__init__(name="pgrouse-heartbeat", daemon=True)
        self._line, self._hand, self._lock, self._sign = line, hand, lock, sign
        self._wake = threading.Event()
        self._stopping = False
        self._signed_at = -SEEN_EVERY_S
        self._failing = False

    def hurry(self) -> None:
        """Look again when the next beat is due: something was taken in hand."""
        self._wake.set()

    def stop(self) -> None:
        """End the thread, and wait for it."""
        self._stopping = True
        self._wake.set()
        self.join(timeout=10)

    def run(self) -> None:
        """Beat until stopped. This is the one place where its failures are handled: the next beat tries again."""
        from psycopg import Error  # noqa: PLC0415

        while not self._stopping:
            try:
                self.beat()
                self._failing = False
            except (Error, DatabaseUnreachable, OSError):
                self._failing = True
            self._wake.wait(self._pause_s())
            self._wake.clear()
        self._line.close()

    def beat(self) -> None:
        """Extend what is due, and give a sign of life if it is time for one."""
        if due := self._hand.due():
            self._hand.lose(self._line.ask(lambda store: store.heartbeat(due, self._lock)))
        self._hand.extended()
        if time.monotonic() - self._signed_at >= SEEN_EVERY_S:
            self._line.ask(self._sign)
            self._signed_at = time.monotonic()

    def _pause_s(self) -> float:
        if self._failing:
            return AGAIN_AFTER_S
        signs_in = max(0.0, self._signed_at + SEEN_EVERY_S - time.monotonic())
        beats_in = self._hand.pause_s()
        return signs_in if beats_in is None else min(signs_in, beats_in)
