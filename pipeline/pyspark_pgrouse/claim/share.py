"""The work of executors for a batch of `consume`.

They settle the share of the last batch, claim one of the next, and read it.

Each share has its own connection, so that claims, reads and settles grow with the executors; the driver only learns
ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark import TaskContext

from pgrouse.client.calls.processing.run import read_claimed
from pyspark_pgrouse.claim.claim_client import ClaimClient, ClaimCursor, ClaimedRow, claim_up_to
from pyspark_pgrouse.claim.claim_ref import ClaimRef, unzip
from pyspark_pgrouse.claim.claimed_batch import ClaimedShare
from pyspark_pgrouse.claim.consumer_options import ConsumerOptions
from pyspark_pgrouse.claim.outcome import SUCCEEDED, AttemptOutcome, settle_in_parts
from pyspark_pgrouse.claim.reconnecting_connection import ReconnectingConnection
from pyspark_pgrouse.connection import connection
from pyspark_pgrouse.read.slices import Slice, SliceReader

# How long a task waits for a server that restarts. On a cluster Spark runs a task four times.
RETRY_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class ShareRequest:
    """The request for one share.

    Attributes:
        settle: the share whose function has returned.
        outcomes: by id; a message without one succeeded.
        rows: the maximum number of messages to claim; 0 = none.
        max_bytes: the approximate maximum size of their payloads; 0 = no limit.
        cursor: where the last claim of this share ended.
    """

    settle: ClaimedShare = field(default_factory=ClaimedShare)
    outcomes: Mapping[int, AttemptOutcome] = field(default_factory=dict)
    rows: int = 0
    max_bytes: int = 0
    cursor: ClaimCursor = field(default_factory=ClaimCursor)


@dataclass(frozen=True)
class ShareResult:
    """The result of one share.

    Attributes:
        counted: the results of the settled messages, as `settle_rows` returns them.
        claimed: the next share.
        cursor: where its claim ended.
        may_have_orphans: its task was run before, or its connection broke: messages may be locked that are in no
            result.
    """

    counted: list[tuple[str, int]]
    claimed: ClaimedShare
    cursor: ClaimCursor
    may_have_orphans: bool


class ShareTask:
    """Serves one request, on an executor."""

    def __init__(self, options: ConsumerOptions) -> None:
        self._options = options
        self._may_have_orphans = self._connected = False
        self._cursor = ClaimCursor()
        self._connection = ReconnectingConnection(self._connect, RETRY_TIMEOUT_S, was_there=True)

    def run(self, request: ShareRequest) -> ShareResult:
        """Settle, then claim: messages that are still held count against limits, and block ordered channels."""
        task = TaskContext.get()
        self._may_have_orphans = task is not None and task.attemptNumber() > 0
        self._cursor = request.cursor
        try:
            rows = [(*ref, request.outcomes.get(ref[0], SUCCEEDED)) for ref in request.settle.refs()]
            counted = settle_in_parts(self._connection, rows)
            claimed = claim_up_to(self._claim, request.rows, request.max_bytes)
        finally:
            self._connection.close()
        return ShareResult(counted, ClaimedShare.of(claimed), self._cursor, self._may_have_orphans)

    def _claim(self, rows: int, size: int) -> list[ClaimedRow]:
        options = self._options
        part = self._connection.run(lambda client: client.claim(options.topics, rows, size, options.lock, self._cursor))
        self._cursor = self._cursor.after(part)
        return part

    def _connect(self) -> ClaimClient:
        # If the connection breaks during a claim, the claim's answer is lost.
        self._may_have_orphans |= self._connected
        self._connected = True
        return ClaimClient(connection.connect(self._options.dsn), self._options.consumer)


def serve(options: ConsumerOptions, requests: Sequence[ShareRequest]) -> list[ShareResult]:
    """Serve requests in parallel: this runs in a task."""
    with ThreadPoolExecutor(len(requests)) as threads:
        return list(threads.map(lambda request: ShareTask(options).run(request), requests))


def claimed_slice(columns: str, refs: Sequence[ClaimRef]) -> Slice:
    """Return a slice that reads these messages, as far as they are still held."""
    call = read_claimed(*unzip(refs))
    # COPY takes no parameters. All values are arrays of numbers.
    claimed = call.statement.decode() % tuple(f"'{each}'" for each in call.values)
    return Slice(f"SELECT {columns} FROM ({claimed}) AS a")  # noqa: S608 - no part comes from a user


@dataclass(frozen=True)
class ShareReader:
    """Reads the shares of a batch, as far as the messages are still held."""

    shares: tuple[ClaimedShare, ...]
    columns: str
    rows: SliceReader

    def read(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the messages of the shares with these numbers."""
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from self.rows.read(claimed_slice(self.columns, self.shares[number].refs()))
