"""The worker's connection to the queue: one method per SQL function that a daemon calls; no decisions.

`WorkerClient.settle_and_claim` does a turn in one round trip: it settles what ended and claims what comes next, in one transaction.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import groupby
from operator import attrgetter
from typing import Any

from psycopg import AsyncConnection, AsyncCursor, DataError, Error
from psycopg.adapt import PyFormat, Transformer

from pgrouse.client.message import Message
from pgrouse.client.settlement import SettleKind, Settlement

CLAIM = (
    f"SELECT {', '.join(Message._fields)} FROM messages.claim"  # noqa: S608 - names of fields
    "(%s, %s::pg_catalog.text[], %s, %s::int[], p_after_topic => %s, p_after_channels => %s::pg_catalog.jsonb,"
    " p_start => %s, p_contents => %s)"
)
READ_CLAIMED = f"SELECT {', '.join(Message._fields)} FROM messages.read_claimed(%s::bigint[], %s::bigint[])"  # noqa: S608 - names of fields
# A claim does not wait for the disk: a crash of the server undoes a lock, and the fence does the rest. A transaction that settles waits. See docs/decisions/0008-claims-do-not-wait-for-the-disk.md.
NO_FLUSH = "pg_catalog.set_config('synchronous_commit', 'off', true)"
OLDEST_XID = "SELECT messages.oldest_running_xid()"
OLDEST_XID_NO_FLUSH = f"SELECT messages.oldest_running_xid(), {NO_FLUSH}"
ARM = f"SELECT messages.arm(%s, %s, pg_catalog.make_interval(secs => %s)), {NO_FLUSH}"
# In the transaction of the claim: next_due skips what that held back because of a limit.
NEXT_DUE = (
    "SELECT pg_catalog.date_part('epoch', messages.next_due(%s::pg_catalog.text[])),"
    " coalesce(pg_catalog.current_setting('messages.held_back', true), '') OPERATOR(pg_catalog.<>) ''"
)


@dataclass(slots=True)
class ClaimRequest:
    """What to claim.

    Attributes:
        topics: the topics that the worker handles and has capacity for.
        limit: the maximum number of messages.
        slots: the maximum per topic; None = no limit of its own.
        after_topic: the topic at which the last claim ended.
        after_channels: the channel at which it ended in each topic, as JSON.
        start: how many start at once; the others wait in the worker, and their run is not counted yet. None = all start.
        batches: the same for the topics of batch handlers; a claim of its own, in the same transaction.
        contents: whether payloads, bodies, headers and states are returned; if not, they are read message by message.
    """

    topics: list[str]
    limit: int
    slots: list[int | None] | None = None
    after_topic: str | None = None
    after_channels: str | None = None
    start: int | None = None
    batches: ClaimRequest | None = None
    contents: bool = True

    @property
    def parts(self) -> list[ClaimRequest]:
        """The claims to make, usually one."""
        both = [self] if self.batches is None else [self, self.batches]
        return [each for each in both if each.topics]


@dataclass(slots=True)
class TurnResult:
    """The result of one round trip.

    Attributes:
        claimed: the messages that were claimed.
        lost: the ids of those settled whose lock had been lost.
        next_due_s: seconds until the next delayed message is due, if that was asked for and one waits.
        held_back: whether the claim skipped messages because of a limit.
        own_xid: a transaction id drawn after arming, if that was asked for.
        oldest_xid: all transactions below it had ended before the claim.
    """

    claimed: list[Message] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    next_due_s: float | None = None
    held_back: bool = False
    own_xid: int | None = None
    oldest_xid: int | None = None


class UnwritableValue(DataError):
    """A value from a handler cannot be sent to the server."""


class WorkerClient:
    """The SQL functions of a worker, on one connection.

    Args:
        conn: an autocommit connection that nothing else uses.
        worker: the name under which this worker claims.
        sleeper: the name under which it sleeps, that of the registry; the same unless given.
    """

    def __init__(self, conn: AsyncConnection, worker: str, sleeper: str | None = None) -> None:
        self.conn = conn
        self.worker = worker
        self.sleeper = sleeper or worker

    async def settle_and_claim(
        self,
        settlements: Sequence[Settlement],
        request: ClaimRequest | None,
        *,
        started: Sequence[Message] = (),
        arm: tuple[list[str], float] | None = None,
        disarm: bool = False,
    ) -> TurnResult:
        """Settle, then claim, in one round trip.

        Args:
            settlements: the attempts to settle, in one transaction with the claim.
            request: what to claim; None claims nothing.
            started: messages that had waited in the worker and have started since: their run is counted now.
            arm: topics and seconds until the next poll: commit the flag and draw an own transaction id, before the claim.
            disarm: lower the flag, in the transaction of the claim.
        """
        result = TurnResult()
        async with self.conn.pipeline() as pipeline:
            if arm is not None:
                await self._execute(ARM, [self.sleeper, *arm])
                await pipeline.sync()
                own = await self._execute("SELECT messages.draw_xid()", [])
                await pipeline.sync()
            if noted := [(each.message, each.progress) for each in settlements if each.progress is not None]:
                # In a transaction of its own: it locks its rows in another order than the settles.
                await self._execute(*progress_statement(noted))
                await pipeline.sync()
            if disarm:
                await self._execute("SELECT messages.disarm(%s)", [self.sleeper])
            if started:
                await self._execute("SELECT messages.count_runs(%s::bigint[], %s::bigint[])", _claim_arrays(started))
            settled = [await self._settle(kind, batch) for kind, batch in _grouped_by_kind(settlements)]
            if request is not None:
                oldest = await self._execute(OLDEST_XID if settlements else OLDEST_XID_NO_FLUSH, [])
                claims = [await self._claim(each) for each in request.parts]
                due = await self._execute(NEXT_DUE, [[topic for each in request.parts for topic in each.topics]])
        if arm is not None:
            result.own_xid = await _scalar(own)
        for cursor in settled:
            result.lost += await _scalar(cursor)
        if request is not None:
            result.oldest_xid = await _scalar(oldest)
            result.claimed = [Message._make(row) for claim in claims for row in await claim.fetchall()]
            result.next_due_s, result.held_back = await due.fetchone() or (None, False)
        return result

    async def release_orphaned(self, known: list[int]) -> list[int]:
        """Release what this worker has locked without knowing it; return the ids."""
        return list(
            await _scalar(
                await self._execute(
                    "SELECT messages.release_orphaned(%s, %s::bigint[])", [self.worker, _bigints(known)]
                )
            )
        )

    async def contents(self, message: Message) -> Message | None:
        """Return a claimed message with its contents; None if its lock was lost."""
        row = await (await self._execute(READ_CLAIMED, _claim_arrays([message]))).fetchone()
        if row is None:
            return None
        held = Message._make(row)
        return message._replace(payload=held.payload, body=held.body, headers=held.headers, state=held.state)

    async def reject(self, message: Message, reason: str) -> None:
        """Archive a message as rejected. A message whose lock was lost is not changed."""
        await self._settle(SettleKind.REJECT, [Settlement(message, SettleKind.REJECT, error=reason)])

    async def tick(self, unless_within_s: float) -> dict[str, int]:
        """Run the maintenance, unless another daemon just did; return what each task did, -1 for a task that failed."""
        statement = (
            "SELECT task, did FROM messages.tick('daemon', p_unless_within => pg_catalog.make_interval(secs => %s))"
        )
        rows = await (await self._execute(statement, [unless_within_s])).fetchall()
        return dict(rows)

    async def raise_low_water(self) -> int:
        """Move the marks from which claims read; return how many there are."""
        return int(await _scalar(await self._execute("SELECT messages.raise_low_water()", [])))

    async def fire_schedules(self) -> float:
        """Publish what is due by the schedules; return the seconds until the next one is due, infinity if never."""
        await self._execute("SELECT messages.fire_schedules()", [])
        due = await self._execute("SELECT pg_catalog.date_part('epoch', messages.next_schedule_due())", [])
        due_s = await _scalar(due)
        return math.inf if due_s is None else float(due_s)

    async def _claim(self, request: ClaimRequest) -> AsyncCursor:
        return await self._execute(
            CLAIM,
            [
                *(self.worker, request.topics, request.limit, request.slots),
                *(request.after_topic, request.after_channels, request.start, request.contents),
            ],
        )

    async def _settle(self, kind: SettleKind, batch: list[Settlement]) -> AsyncCursor:
        statement, values = settle_statement(kind, batch)
        try:
            return await self._execute(statement, values)
        except Error:
            raise
        except Exception:
            self._check_writable(values)
            raise

    def _check_writable(self, values: Sequence[Any]) -> None:
        """Adapt values as execute() does. That runs their own code, a time zone's for instance, which may raise anything."""
        try:
            Transformer(self.conn).dump_sequence(values, [PyFormat.AUTO] * len(values))
        except Exception as error:
            raise UnwritableValue("".join(traceback.format_exception_only(error)).strip()) from error

    async def _execute(self, statement: str | bytes, values: Sequence[Any]) -> AsyncCursor:
        cursor = self.conn.cursor(binary=True)
        await cursor.execute(statement.encode() if isinstance(statement, str) else statement, values)
        return cursor


KIND_OF = attrgetter("kind")

# The SQL function of each kind, and which fields of Settlement it takes besides id and claim_id.
SETTLE_FUNCTIONS: dict[SettleKind, tuple[str, tuple[str, ...]]] = {
    SettleKind.COMPLETE: (
        "SELECT messages.complete(%s::bigint[], %s::bigint[], %s::pg_catalog.text[]::pg_catalog.jsonb[])",
        ("output",),
    ),
    SettleKind.RETRY: (
        "SELECT messages.retry(%s::bigint[], %s::bigint[], %s::pg_catalog.text[], %s::interval[], %s::pg_catalog.text[]::pg_catalog.jsonb[])",
        ("error", "after", "state"),
    ),
    SettleKind.EXPIRE: (
        "SELECT messages.retry(%s::bigint[], %s::bigint[], %s::pg_catalog.text[], p_result => 'lock_expired')",
        ("error",),
    ),
    SettleKind.REJECT: ("SELECT messages.reject(%s::bigint[], %s::bigint[], %s::pg_catalog.text[])", ("error",)),
    SettleKind.FAIL: ("SELECT messages.fail(%s::bigint[], %s::bigint[], %s::pg_catalog.text[])", ("error",)),
    SettleKind.DEFER: (
        "SELECT messages.defer(%s::bigint[], %s::bigint[], %s::interval[], %s::pg_catalog.timestamptz[], %s::pg_catalog.text[]::pg_catalog.jsonb[])",
        ("after", "until", "state"),
    ),
    SettleKind.RELEASE: ("SELECT messages.release(%s::bigint[], %s::bigint[], %s::boolean[])", ("ran",)),
}


def settle_statement(kind: SettleKind, batch: Sequence[Settlement]) -> tuple[bytes, list[Any]]:
    """Return the statement that settles attempts of one kind. Its row has the ids of those whose lock was lost."""
    statement, columns = SETTLE_FUNCTIONS[kind]
    ids = _bigints(e.message.id for e in batch)
    claims = _bigints(e.message.claim_id for e in batch)
    given = [[getattr(e, column) for e in batch] for column in columns]
    some = [values if any(v is not None for v in values) else None for values in given]
    return statement.encode(), [ids, claims, *some]


def complete_statement(messages: Sequence[Message], outputs: list[str | None]) -> tuple[bytes, list[Any]]:
    """Return the statement that completes messages. Its row has the ids of those whose lock was lost: ([],) if there are none."""
    return SETTLE_FUNCTIONS[SettleKind.COMPLETE][0].encode(), [
        [m.id for m in messages],
        [m.claim_id for m in messages],
        outputs,
    ]


def heartbeat_statement(messages: Iterable[Message], lock_duration: timedelta | None = None) -> tuple[bytes, list[Any]]:
    """Return the statement that extends the locks of these messages, by the topic's lock duration unless one is given."""
    return b"SELECT messages.heartbeat(%s::bigint[], %s::bigint[], %s)", [*_claim_arrays(messages), lock_duration]


def cancelled_statement(messages: Iterable[Message]) -> tuple[bytes, list[Any]]:
    """Return the statement that selects the cancelled ones of these messages, whose lock was lost."""
    return b"SELECT messages.cancelled_ids(%s::bigint[], %s::bigint[])", _claim_arrays(messages)


def progress_statement(noted: Sequence[tuple[Message, str]], *, wait: bool = True) -> tuple[bytes, list[Any]]:
    """Return the statement that writes the progress of these messages. wait: also for rows that are locked at this moment."""
    claims = _claim_arrays(message for message, _ in noted)
    return b"SELECT messages.set_progress(%s::bigint[], %s::bigint[], %s::pg_catalog.text[]::pg_catalog.jsonb[], %s)", [
        *claims,
        [text for _, text in noted],
        wait,
    ]


def _claim_arrays(messages: Iterable[Message]) -> list[Any]:
    held = list(messages)
    return [_bigints(m.id for m in held), _bigints(m.claim_id for m in held)]


def _grouped_by_kind(settlements: Iterable[Settlement]) -> Iterable[tuple[SettleKind, list[Settlement]]]:
    in_order = sorted(settlements, key=KIND_OF)
    return ((kind, list(batch)) for kind, batch in groupby(in_order, KIND_OF))


def _bigints(numbers: Iterable[int]) -> str:
    """Return an array literal: for hundreds of ids this is much faster than adapting a list element by element."""
    return "{" + ",".join(map(str, numbers)) + "}"


async def _scalar(cursor: AsyncCursor) -> Any:
    row = await cursor.fetchone()
    return None if row is None else row[0]
