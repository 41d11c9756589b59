"""Claims and settles the batches of a consumer on Spark's executors: one share for each connection."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, cast

from pyspark.sql.types import StructType

from pgrouse.errors import ConfigError
from pyspark_pgrouse import schema
from pyspark_pgrouse.claim.batch_settler import BatchSettler
from pyspark_pgrouse.claim.claim_client import ClaimCursor
from pyspark_pgrouse.claim.claimed_batch import ClaimedBatch, ClaimedShare
from pyspark_pgrouse.claim.consumer_options import ConsumerOptions
from pyspark_pgrouse.claim.outcome import AttemptOutcome, SettledCounts, sum_results
from pyspark_pgrouse.claim.share import ShareReader, ShareRequest, ShareResult, serve
from pyspark_pgrouse.executors import on_executors, task_slots
from pyspark_pgrouse.read.slices import SliceReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# With a single connection, the server and the task would wait for each other in turn.
LEAST_CONNECTIONS = 2
# Starting a share costs more than claiming fewer messages than this.
LEAST_ROWS = 200
NOTHING = ClaimedBatch()


class ExecutorClaims:
    """The claims of one consumer.

    Args:
        spark: the session.
        options: which messages are claimed.
        settler: the settler of the same consumer.
        run: runs tasks; None = on the executors.
        slots: returns how many tasks a session runs at a time.

    Raises:
        ConfigError: Spark may run a task twice at the same time.
    """

    def __init__(
        self,
        spark: SparkSession,
        options: ConsumerOptions,
        settler: BatchSettler,
        run: Callable[..., list[list[ShareResult]]] | None = None,
        slots: Callable[[SparkSession], int] = task_slots,
    ) -> None:
        self._spark, self._options, self._settler = spark, options, settler
        self._run, self._slots = run or partial(on_executors, spark), slots
        if str(spark.conf.get("spark.speculation", "false")).lower() == "true":
            raise ConfigError(
                "spark.speculation runs a task twice at the same time, and both would claim messages: "
                "--conf spark.speculation=false"
            )
        self._cursors: list[ClaimCursor] = []

    def claim(self, rows: int, shares: int | None = None) -> ClaimedBatch:
        """Claim a batch of at most this many messages, in this many shares.

        None = as many as the executors claim at a time.
        """
        return self.advance(NOTHING, {}, rows, shares)[1]

    def advance(
        self, done: ClaimedBatch, outcomes: Mapping[int, AttemptOutcome], rows: int, shares: int | None = None
    ) -> tuple[SettledCounts, ClaimedBatch]:
        """Settle a batch and claim the next one, in one go.

        Args:
            done: the batch whose function has returned.
            outcomes: by id; a message without one succeeded.
            rows: how many messages the next batch may have; 0 = claim none.
            shares: as in `claim`.

        Raises:
            PgrouseError: a task failed more often than Spark tries it. Held messages are still held.
        """
        slots = self._slots(self._spark)
        requests = self._requests(done, outcomes, rows, shares or max(LEAST_CONNECTIONS, slots))
        results = self._serve(requests, slots)
        self._cursors[: len(results)] = [result.cursor for result in results]
        batch = ClaimedBatch(tuple(result.claimed for result in results if len(result.claimed)))
        self._release_orphans(results, batch)
        return sum_results(counted for result in results for counted in result.counted), batch

    def frame(self, batch: ClaimedBatch) -> DataFrame:
        """Return the messages of a batch that are still held when it is read."""
        ddl = schema.typed(schema.CLAIMED)
        rows = SliceReader(self._options.dsn, schema.CLAIMED, cast("StructType", StructType.fromDDL(ddl)))
        reader = ShareReader(batch.shares, schema.select(schema.CLAIMED), rows)
        tasks = len(batch.shares)
        return self._spark.range(0, tasks, 1, tasks).mapInArrow(reader.read, ddl)

    def _serve(self, requests: list[ShareRequest], slots: int) -> list[ShareResult]:
        """Serve requests with at most this many tasks; return the results in the same order."""
        tasks = min(slots, len(requests))
        of_tasks = [requests[task::tasks] for task in range(tasks)]
        served = self._run(partial(serve, self._options), of_tasks)
        return [result for results in zip_longest(*served) for result in results if result]

    def _requests(
        self, done: ClaimedBatch, outcomes: Mapping[int, AttemptOutcome], rows: int, shares: int
    ) -> list[ShareRequest]:
        claiming = min(shares, -(-rows // LEAST_ROWS))
        parts = [rows // claiming + (number < rows % claiming) for number in range(claiming)]
        return [
            ShareRequest(
                share,
                {id_: outcomes[id_] for ids in share.ids.values() for id_ in ids if id_ in outcomes}
                if outcomes
                else {},
                part,
                -(-self._options.max_bytes // claiming) if claiming else 0,
                cursor,
            )
            for share, part, cursor in self._dealt(done, parts)
        ]

    def _dealt(self, done: ClaimedBatch, parts: list[int]) -> list[tuple[ClaimedShare, int, ClaimCursor]]:
        """Return what each share settles, how many messages it claims, and from which cursor."""
        shares = max(len(done.shares), len(parts))
        self._cursors += [ClaimCursor()] * (shares - len(self._cursors))
        dealt = zip_longest(done.shares, parts, self._cursors[:shares])
        return [(share or ClaimedShare(), part or 0, cursor) for share, part, cursor in dealt]

    def _release_orphans(self, results: list[ShareResult], batch: ClaimedBatch) -> None:
        if any(result.may_have_orphans for result in results):
            self._settler.release_orphaned(batch.refs())
