"""The worker's connection to the queue: what a daemon claims and settles; no decisions.

`WorkerClient.settle_and_claim` does a turn in one round trip: it settles what ended and claims what comes next, in one
transaction.
"""

from __future__ import annotations

import traceback
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import groupby
from operator import attrgetter
from typing import Any, Generic, TypeVar

from psycopg import AsyncConnection, AsyncCursor, AsyncPipeline, DataError, Error
from psycopg.adapt import PyFormat, Transformer
from psycopg.rows import tuple_row

from pgrouse.client.call import Call, run_async
from pgrouse.client.calls.processing import claim, run, settle, wake
from pgrouse.client.message import Message, claim_refs
from pgrouse.client.processing.settlement import LoggedLines, SettleKind, Settlement, settlement_call
from pgrouse.database.connection_schema import schema_of

T = TypeVar("T")

# How many characters of log lines one statement has.
MAX_LOGS = 8_000_000
# A claim does not wait for the disk: a crash of the server undoes a lock, and the fence does the rest. A transaction
# that settles waits. See docs/decisions/0008-claims-do-not-wait-for-the-disk.md.
NO_FLUSH = b"pg_catalog.set_config('synchronous_commit', 'off', true)"


@dataclass(slots=True)
class ClaimRequest:
    """What to claim.

    Attributes:
        topics: the topics that the worker handles and has capacity for.
        limit: the maximum number of messages.
        slots: the maximum per topic; None = no limit of its own.
        after_topic: the topic at which the last claim ended.
        after_channels: the channel at which it ended in each topic, as JSON.
        start: how many start at once; the others wait in the worker, and their run is not counted yet. None = all
            start.
        prefetch: how many of each topic may wait in the worker; `slots` includes them. None = as many as the limit
            allows beyond `start`.
        batches: the same for the topics of batch handlers; a claim of its own, in the same transaction.
        others: topics and patterns of the worker of which nothing may be claimed; given if it handles patterns.
        message_id: a message that is taken first, and alone if it can be had; None = as the order says.
        contents: whether payloads, bodies, headers and states are returned; if not, they are read message by message.
    """

    topics: list[str]
    limit: int
    slots: list[int | None] | None = None
    after_topic: str | None = None
    after_channels: str | None = None
    start: int | None = None
    prefetch: list[int] | None = None
    batches: ClaimRequest | None = None
    others: list[str] = field(default_factory=list)
    contents: bool = True
    message_id: int | None = None

    @property
    def bounds(self) -> list[tuple[str, int | None]]:
        """How many messages of each topic to claim at most, where it is bounded; None = not by itself."""
        return list(zip(self.topics, self.slots, strict=True)) if self.slots else []

    @property
    def all_slots(self) -> list[int | None] | None:
        """The slots of `topics` and of `others`."""
        if not self.others:
            return self.slots
        return [*(self.slots or [None] * len(self.topics)), *[0] * len(self.others)]

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
        next_due_s: seconds until the next delayed message is due, if nothing was claimed and one waits.
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

    def add_claim(self, claimed: claim.Claimed) -> None:
        """Add what one claim returned."""
        self.claimed += claimed.messages
        self.held_back = self.held_back or claimed.held_back_json is not None
        dues = [each for each in (self.next_due_s, claimed.next_due_s) if each is not None]
        self.next_due_s = min(dues, default=None)
        self.oldest_xid = claimed.oldest_xid if self.oldest_xid is None else self.oldest_xid


class UnwritableValue(DataError):
    """A value from a handler cannot be sent to the server."""


class _Answer(Generic[T]):
    """The answer to a call that was sent; it is read after the pipeline."""

    def __init__(self, cursor: AsyncCursor, call: Call[T]) -> None:
        self._cursor, self._call = cursor, call

    async def read(self) -> T:
        return self._call.read(await self._cursor.fetchall())


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
        logs: Sequence[LoggedLines] = (),
        arm: tuple[list[str], float] | None = None,
        disarm: bool = False,
    ) -> TurnResult:
        """Settle, then claim, in one round trip.

        Args:
            settlements: the attempts to settle: a transaction for each kind, the last together with the claim.
            request: what to claim; None claims nothing.
            started: messages that had waited in the worker and have started since: their run is counted now.
            logs: the log lines to keep of attempts that ended.
            arm: topics and seconds until the next poll: commit the flag and draw an own transaction id, before the
                claim.
            disarm: take down the flag, in the transaction of the claim; publishes look for sleepers no longer after it.
        """
        kinds = _grouped_by_kind(settlements)
        others = started or logs or disarm or arm is not None or any(each.progress is not None for each in settlements)
        if not others and (only := self._only_call(kinds, request)) is not None:
            return await (await self._send_values(only)).read()
        result = TurnResult()
        async with self.conn.pipeline() as pipeline:
            if arm is not None:
                topics, look_in_s = arm
                await self._send(_without_flush(wake.arm(self.sleeper, topics, timedelta(seconds=look_in_s))))
                await pipeline.sync()
                own = await self._send(wake.draw_xid())
                await pipeline.sync()
            await self._commit_before_settles(pipeline, settlements, logs)
            settled = await self._commit_all_but_last(pipeline, started, kinds)
            if disarm:
                await self._send(wake.disarm(self.sleeper))
            settled += [await self._settle(kind, batch) for kind, batch in kinds[-1:]]
            claims = await self._send_claims(request, flush=bool(settlements)) if request is not None else []
        if arm is not None:
            result.own_xid = await own.read()
        for each in settled:
            result.lost += await each.read()
        for claimed in claims:
            result.add_claim(await claimed.read())
        if disarm:
            await self._lower_armed_until()
        return result

    async def _commit_before_settles(
        self, pipeline: AsyncPipeline, settlements: Sequence[Settlement], logs: Sequence[LoggedLines]
    ) -> None:
        """Store progress and log lines, each in a transaction: they lock rows in another order than the settles."""
        if noted := [each for each in settlements if each.progress is not None]:
            await self._send(_progress(noted))
            await pipeline.sync()
        for part in _parts(logs):
            # What settles them waits for the disk, and so for these.
            await self._send(_without_flush(self._saved_logs(part)))
            await pipeline.sync()

    async def _commit_all_but_last(
        self, pipeline: AsyncPipeline, started: Sequence[Message], kinds: list[tuple[SettleKind, list[Settlement]]]
    ) -> list[_Answer[list[int]]]:
        """Count runs and settle all kinds but the last, each in a transaction.

        A statement locks its messages in the order of their ids. Two statements in one transaction would deadlock with
        a cancel of several messages.
        """
        if started:
            await self._send(run.count_runs(*claim_refs(started)))
            if kinds:
                await pipeline.sync()
        settled = []
        for kind, batch in kinds[:-1]:
            settled.append(await self._settle(kind, batch))
            await pipeline.sync()
        return settled

    async def _lower_armed_until(self) -> None:
        """Let publishes look for sleepers no longer, once the flag is committed.

        What was settled and claimed stands if this fails; the tick does the same some seconds later.
        """
        with suppress(Error):
            await self._send(_without_flush(wake.lower_armed_until()))

    async def _send_claims(self, request: ClaimRequest, *, flush: bool) -> list[_Answer[claim.Claimed]]:
        # Only the first says that nothing waits for the disk: the next would revoke what the first has found out since.
        return [await self._send(self._claim(each, flush=flush or nth > 0)) for nth, each in enumerate(request.parts)]

    def _only_call(
        self, kinds: list[tuple[SettleKind, list[Settlement]]], request: ClaimRequest | None
    ) -> Call[TurnResult] | None:
        """Return the call that settles and claims; None if it takes several.

        A single call needs no pipeline, which costs the client up to a third more.
        """
        match kinds, request.parts if request is not None else []:
            case [], [part]:
                claimed = self._claim(part, flush=False)
                return Call(claimed.statement, claimed.values, lambda rows: _turn_result([], claimed.read(rows)))
            case [(kind, batch)], []:
                settled = settlement_call(kind, batch)
                return Call(settled.statement, settled.values, lambda rows: TurnResult(lost=settled.read(rows)))
            case [(SettleKind.COMPLETE, batch)], [part]:
                return _as_one(settlement_call(SettleKind.COMPLETE, batch), self._claim(part, flush=True))
            case _:
                return None

    async def end_backends(self, pids: Collection[int]) -> set[int]:
        """Ask the server to end its processes for lost connections of this one's name; return those that still run.

        The server may not have noticed the loss: a process that is late, or waits for data, would run what it was sent.
        Behind a pooler the ids are made up, and none is found. An id that has become that of this connection is of a
        process that has ended.
        """
        cursor = await self.conn.execute(END_BACKENDS, [list(pids)]) if pids else None
        return {pid for pid, _ in await cursor.fetchall()} if cursor else set()

    async def release_orphaned(self, known: list[int]) -> list[int]:
        """Release what this worker has locked without knowing it; return the ids."""
        return await run_async(self.conn, settle.release_orphaned(self.worker, known))

    async def contents(self, message: Message) -> Message | None:
        """Return a claimed message with its contents; None if its lock was lost."""
        held = await run_async(self.conn, run.read_claimed(*claim_refs([message])))
        return message.with_contents(held[0]) if held else None

    async def reject(self, message: Message, reason: str) -> None:
        """Archive a message as rejected. A message whose lock was lost is not changed."""
        await run_async(self.conn, settle.reject(*claim_refs([message]), [reason]))

    def _claim(self, request: ClaimRequest, *, flush: bool) -> Call[claim.Claimed]:
        call = claim.claim_with_next_due(
            self.worker,
            [*request.topics, *request.others],
            request.limit,
            slots=request.all_slots,
            after_topic=request.after_topic,
            after_channels=request.after_channels,
            start=request.start,
            prefetch=request.prefetch,
            contents=request.contents,
            message_id=request.message_id,
        )
        return call if flush else Call(claim.CLAIM_WITHOUT_FLUSH, call.values, call.read)

    async def _settle(self, kind: SettleKind, batch: list[Settlement]) -> _Answer[list[int]]:
        return await self._send_values(settlement_call(kind, batch))

    async def _send_values(self, call: Call[T]) -> _Answer[T]:
        """Send a call with values from handlers.

        Raises:
            UnwritableValue: one of them cannot be sent.
        """
        try:
            return await self._send(call)
        except Error:
            raise
        except Exception:
            self._check_writable(call.values)
            raise

    def _check_writable(self, values: Iterable[Any]) -> None:
        """Adapt values as execute() does.

        That runs their own code, a time zone's for instance, which may raise anything.
        """
        try:
            given = list(values)
            Transformer(self.conn).dump_sequence(given, [PyFormat.AUTO] * len(given))
        except Exception as error:
            raise UnwritableValue("".join(traceback.format_exception_only(error)).strip()) from error

    def _saved_logs(self, logs: Sequence[LoggedLines]) -> Call[list[int]]:
        texts = [each.text for each in logs]
        if self.conn.info.parameter_status("server_encoding") != "UTF8":
            texts = [each.encode("ascii", "backslashreplace").decode() for each in texts]
        left_out = [each.left_out for each in logs]
        return run.save_logs(*claim_refs(each.message for each in logs), texts, left_out)

    async def _send(self, call: Call[T]) -> _Answer[T]:
        cursor = AsyncCursor(self.conn, row_factory=tuple_row)
        await cursor.execute(schema_of(self.conn).render_bytes(call.statement), call.values, binary=True)
        return _Answer(cursor, call)


END_BACKENDS = b"""
    SELECT a.pid, pg_catalog.pg_terminate_backend(a.pid) FROM pg_catalog.pg_stat_activity AS a
    WHERE a.pid OPERATOR(pg_catalog.=) ANY (%s::integer[]) AND a.usename OPERATOR(pg_catalog.=) SESSION_USER
      AND a.application_name OPERATOR(pg_catalog.=) pg_catalog.current_setting('application_name')
      AND a.pid OPERATOR(pg_catalog.<>) pg_catalog.pg_backend_pid()
"""
KIND_OF = attrgetter("kind")


def _progress(noted: Sequence[Settlement]) -> Call[list[int]]:
    return run.set_progress(*claim_refs(each.message for each in noted), [str(each.progress) for each in noted])


def _parts(logs: Sequence[LoggedLines]) -> Iterator[list[LoggedLines]]:
    """Divide log lines into parts, each for one statement."""
    part: list[LoggedLines] = []
    size = 0
    for each in logs:
        if part and size + len(each.text) > MAX_LOGS:
            yield part
            part, size = [], 0
        part.append(each)
        size += len(each.text)
    if part:
        yield part


def _without_flush(call: Call[T]) -> Call[T]:
    """Return the call such that its transaction does not wait for the disk."""
    statement = b"SELECT f.*, " + NO_FLUSH + b" FROM (" + call.statement + b") AS f"
    return Call(statement, call.values, lambda rows: call.read([row[:-1] for row in rows]))


def _as_one(completion: Call[list[int]], claimed: Call[claim.Claimed]) -> Call[TurnResult]:
    values = [*completion.values, *claimed.values]
    return Call(claim.COMPLETE_AND_CLAIM, values, lambda rows: _turn_result(rows[-1][-1], claimed.read(rows)))


def _turn_result(lost: list[int], claimed: claim.Claimed) -> TurnResult:
    result = TurnResult(lost=lost)
    result.add_claim(claimed)
    return result


def _grouped_by_kind(settlements: Iterable[Settlement]) -> list[tuple[SettleKind, list[Settlement]]]:
    in_order = sorted(settlements, key=KIND_OF)
    return [(kind, list(batch)) for kind, batch in groupby(in_order, KIND_OF)]
