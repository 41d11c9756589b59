"""The loop of `consume`: claim a batch, call the function, settle, and claim the next."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pgrouse.client.processing.settlement import SettleKind
from pyspark_pgrouse.claim.batch import BatchFunction, BatchResult, call_function, search_batch
from pyspark_pgrouse.claim.batch_settler import BatchSettler
from pyspark_pgrouse.claim.batch_size import BatchSize
from pyspark_pgrouse.claim.claimed_batch import ClaimedBatch
from pyspark_pgrouse.claim.consumer_locks import HeldClaims
from pyspark_pgrouse.claim.consumer_options import ConsumerOptions, OnError
from pyspark_pgrouse.claim.executor_claims import NOTHING, ExecutorClaims
from pyspark_pgrouse.claim.locks_process import LocksProcess, LocksProcessEnded
from pyspark_pgrouse.claim.outcome import AttemptOutcome, Row, SettledCounts
from pyspark_pgrouse.claim.signal_flag import SignalFlag

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NOT_BEGUN = AttemptOutcome(SettleKind.RELEASE, ran=False)
RELEASED = AttemptOutcome(SettleKind.RELEASE)


class BatchConsumer:
    """One run of a function over batches.

    Args:
        function: processes them.
        claims: claims, reads and settles them.
        settler: settles the rest of a batch for which the function raised an exception.
        locks: extends their locks.
        options: the size of batches, when the run ends, and how it treats a failed batch.
        report: called with every batch that was processed.
        stop: set it to end the run after the batch that is running.

    Attributes:
        failed_in_a_row: how many of the last batches failed.
        settled: the results of all messages.
    """

    def __init__(
        self,
        function: BatchFunction,
        claims: ExecutorClaims,
        settler: BatchSettler,
        locks: LocksProcess,
        options: ConsumerOptions,
        report: Callable[[BatchResult], None],
        stop: SignalFlag,
    ) -> None:
        self.failed_in_a_row = 0
        self.settled = SettledCounts()
        self._function, self._claims, self._settler, self._locks = function, claims, settler, locks
        self._options, self._report, self.stop = options, report, stop
        self._size = BatchSize(options.rows)
        self._batches, self._held = 0, NOTHING
        self._left = settler.count_ready(options.topics) if options.available_now else None

    def run(self) -> None:
        """Process messages until stopped, until too many batches have failed, or until no messages are left.

        Raises:
            PgrouseError: it cannot continue. The messages that it holds are released.
        """
        try:
            self._run()
        except LocksProcessEnded:
            # The process that releases them has ended. Do not release by name: another job may use the name now.
            self._settler.settle([(*ref, RELEASED) for ref in self._settler.held(self._held.claims)])
            raise

    def _run(self) -> None:
        batch = self._claim()
        while not self._is_over():
            if len(batch):
                batch = self._work(batch)
            elif self._left is not None:
                return
            else:
                self.stop.wait(self._options.interval_s)
                # Most claims find nothing: one share is enough, until one finds something.
                batch = self._claim(shares=1)
        self._settler.settle(_not_begun(batch))

    def _claim(self, shares: int | None = None) -> ClaimedBatch:
        started = time.monotonic()
        return self._hold(self._claims.claim(self._rows(), shares), started)

    def _work(self, batch: ClaimedBatch) -> ClaimedBatch:
        """Process a batch, settle it, and return the next one."""
        started = time.monotonic()
        frame = self._claims.frame(batch)
        outcomes = call_function(self._function, frame)
        self._size.record(len(batch), time.monotonic() - started, batch.lock_duration_s)
        if not isinstance(outcomes, str):
            return self._settle_and_claim(batch, outcomes, started)
        ran = self._give_back(batch, frame, outcomes)
        self._end(started, ran)
        if ran.has_failed and not self._is_over():
            # The function may need something that is unavailable now.
            self.stop.wait(self._options.interval_s)
        return self._claim() if self._goes_on() else self._hold(NOTHING, started)

    def _give_back(self, batch: ClaimedBatch, frame: DataFrame, error: str) -> BatchResult:
        """Settle a batch for which the function raised an exception."""
        held = self._settler.held(batch.claims)
        if not held:
            return BatchResult(self._batches, SettledCounts(lost=len(batch)), 0, error, has_failed=True)
        if self._options.on_error is OnError.RELEASE:
            released = self._settler.settle([(*ref, RELEASED) for ref in held])
            return BatchResult(self._batches, released, 0, error, has_failed=True)
        search = search_batch(self._function, frame, held, error, self._settler, self.stop.is_set)
        return BatchResult(self._batches, search.settled, 0, error, search.at_fault, search.has_failed)

    def _settle_and_claim(
        self, batch: ClaimedBatch, outcomes: Mapping[int, AttemptOutcome], started: float
    ) -> ClaimedBatch:
        advanced = time.monotonic()
        settled, following = self._claims.advance(batch, outcomes, self._rows() if self._goes_on() else 0)
        self._hold(following, advanced)
        self._end(started, BatchResult(self._batches, settled, 0))
        # Messages that other tasks still held may have prevented this claim from finding any.
        return following if len(following) or not self._goes_on() else self._claim()

    def _end(self, started: float, ran: BatchResult) -> None:
        """Record a batch that has ended."""
        self.settled += ran.settled
        self.failed_in_a_row = self.failed_in_a_row + 1 if ran.has_failed else 0
        self._report(replace(ran, seconds=time.monotonic() - started))
        self._batches += 1

    def _is_over(self) -> bool:
        return self.stop.is_set() or self.failed_in_a_row >= self._options.max_failed_batches

    def _goes_on(self) -> bool:
        return not self._is_over() and (self._left is None or self._left > 0)

    def _rows(self) -> int:
        return self._size.rows if self._left is None else min(self._size.rows, self._left)

    def _hold(self, batch: ClaimedBatch, since: float) -> ClaimedBatch:
        """Extend the locks of this batch from now on, and of no other.

        since: the earliest moment at which it was claimed.
        """
        if self._left is not None:
            self._left -= len(batch)
        self._held = batch
        self._locks.hold(
            HeldClaims(
                tuple(batch.claims),
                len(batch),
                batch.lock_duration_s,
                batch.timeout_s,
                time.monotonic() - since,
                self.settled.total,
            )
        )
        return batch


def _not_begun(batch: ClaimedBatch) -> list[Row]:
    return [(*ref, NOT_BEGUN) for ref in batch.refs()]
