"""A claim loop: one connection.

Each of its turns settles what ended and claims what comes next, in one round trip and one transaction.

A daemon has two: while the server serves one loop, the handlers of the other loop's messages run.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg

from pgrouse.client.connection import database
from pgrouse.client.message import Message
from pgrouse.client.processing.settlement import SettleKind, Settlement
from pgrouse.client.processing.worker_client import TurnResult, WorkerClient
from pgrouse.logging import events
from pgrouse.logging.event_logger import log
from pgrouse.process.wake_event import WakeEvent
from pgrouse.values.error_line import to_storable_text
from pgrouse.worker.execution.executor import HandlerExecutor
from pgrouse.worker.execution.settle_buffer import SettleBuffer
from pgrouse.worker.loop.claim_planner import ClaimPlanner, TurnPlan
from pgrouse.worker.reporting.observer import NO_OBSERVER, Observer

# A turn takes milliseconds. If it takes this long, it waits for a lock, or for a server that is gone.
TURN_TIMEOUT_S = 30
# The time left for a turn that is under way when the connection becomes suspect.
SUSPECT_TURN_TIMEOUT_S = 2
# How often a loop that has nothing else to do asks whether the server's process for its lost connection has ended.
LOST_BACKEND_CHECK_S = 0.2
# How often reading one message may time out.
MAX_TIMEOUTS = 2
# Errors that may not happen again on another try. Any other error of a settle is caused by one of its messages.
TRANSIENT = (psycopg.OperationalError, psycopg.errors.UniqueViolation)
# The SQLSTATE class of values that are too large. psycopg maps it to OperationalError too, but the next try would fail
# again.
PROGRAM_LIMIT_CLASS = "54"


class ClaimLoop:
    """One claim loop of a daemon.

    Args:
        number: 0 is the first loop, which polls and falls asleep for all.
        wake_event: set when there may be something to do.
        observer: sees every turn.
    """

    def __init__(
        self,
        number: int,
        db: database.Database,
        planner: ClaimPlanner,
        settle_buffer: SettleBuffer,
        executor: HandlerExecutor,
        wake_event: WakeEvent,
        observer: Observer = NO_OBSERVER,
    ) -> None:
        self.name = f"claim-{number}"
        self.observer = observer
        self.worker = f"{db.worker}/{number}"
        self.first = number == 0
        self.db, self.planner, self.settle_buffer, self.executor, self.wake_event = (
            db,
            planner,
            settle_buffer,
            executor,
            wake_event,
        )
        self._conn: psycopg.AsyncConnection | None = None
        self._claim_is_uncertain = False
        # The server processes of this connection, and of lost connections on which a last claim may still run.
        self._backend = 0
        self._lost_backends: set[int] = set()
        self._is_connection_suspect = False
        self._deadline: asyncio.Timeout | None = None
        self._timeouts: Counter[int] = Counter()  # by message id

    async def step(self) -> float:
        """Run one turn; wait if there is nothing to do."""
        client = await self._connected_client()
        if pause_s := self.planner.pause_s(first=self.first):
            await self.wake_event.wait(pause_s if self.first or self.settle_buffer.waiting else None)
            return 0
        settlements = self.settle_buffer.take()
        plan = self.planner.next_turn(first=self.first, settling=bool(settlements))
        is_waiting = self.settle_buffer.started or self.settle_buffer.logs
        if settlements or plan.request is not None or plan.disarm or is_waiting:
            await self._turn(client, settlements, plan)
        else:
            await self.wake_event.wait(self._wait_s())
        return 0

    def _wait_s(self) -> float | None:
        if self._lost_backends:
            return LOST_BACKEND_CHECK_S
        return self.planner.wait_s() if self.first else None

    async def reset(self) -> None:
        """Close the connection."""
        conn, self._conn = self._conn, None
        if self._claim_is_uncertain and conn is not None:
            self._lost_backends.add(self._backend)
        self._is_connection_suspect = False
        await database.close(conn)

    def suspect_connection(self) -> None:
        """Another connection proved dead, so this one may be dead too.

        Give the current turn little more time, and reconnect for the next.
        """
        self._is_connection_suspect = True
        if self._deadline and not self._deadline.expired():
            soon = asyncio.get_running_loop().time() + SUSPECT_TURN_TIMEOUT_S
            self._deadline.reschedule(min(soon, self._deadline.when() or soon))

    @property
    def may_hold_unknown(self) -> bool:
        """Whether a claim is under way, or failed so that it is not known which messages it locked."""
        return self._claim_is_uncertain or bool(self._lost_backends)

    @asynccontextmanager
    async def _turn_timeout(self) -> AsyncIterator[None]:
        seconds = SUSPECT_TURN_TIMEOUT_S if self._is_connection_suspect else TURN_TIMEOUT_S
        try:
            async with asyncio.timeout(seconds) as self._deadline:
                yield
        finally:
            self._deadline = None

    async def _connected_client(self) -> WorkerClient:
        if self._is_connection_suspect:
            await self.reset()
        if self._conn is None:
            self._conn = await self.db.connect(self.name)
            self._backend = self._conn.info.backend_pid
        client = WorkerClient(self._conn, self.worker, sleeper=self.db.worker)
        if self.may_hold_unknown:
            await self._release_orphaned(client)
        return client

    async def _release_orphaned(self, client: WorkerClient) -> None:
        """Release what was claimed on a lost connection.

        Repeat it before each turn while that connection's process runs: it may commit its claim late.
        """
        async with self._turn_timeout():
            running = await client.end_backends(self._lost_backends)
            await client.release_orphaned(self.executor.in_flight.ids())
        self._claim_is_uncertain, self._lost_backends = False, running
        self.settle_buffer.wake_events.set()

    async def _turn(self, client: WorkerClient, settlements: list[Settlement], plan: TurnPlan) -> None:
        sent_at, wake_count = self.planner.clock(), self.planner.wake_count
        result = await self._settle_and_claim(client, settlements, plan)
        if settlements:
            self.settle_buffer.done(settlements, result.lost)
            self.executor.in_flight.remove(each.message for each in settlements)
        self.planner.record_result(plan, result, sent_at=sent_at, wake_count=wake_count)
        if self.planner.held_back and not self.first:
            # The time of the next claim may have changed, and the first loop waits for that time.
            self.settle_buffer.wake_events.set()
        if plan.request is not None:
            self.settle_buffer.metrics.record_claim(result.claimed, plan.reason, plan.slept_s)
        if result.claimed:
            waiting = result.claimed[plan.request.start :] if plan.request and plan.request.start is not None else []
            if plan.request and not plan.request.contents:
                await self._add_one_by_one(client, result.claimed, sent_at, waiting)
            else:
                self.executor.add(result.claimed, sent_at, waiting=waiting)
            # Most handlers end before this returns, so that the next turn both settles them and claims.
            await asyncio.sleep(0)

    async def _add_one_by_one(
        self, client: WorkerClient, claimed: list[Message], sent_at: float, waiting: list[Message]
    ) -> None:
        """Read the contents of claimed messages one by one, and start each that can be read; the others are rejected.

        If this fails, the next turn releases the messages that were not read.
        """
        self._claim_is_uncertain = True
        try:
            for each in claimed:
                if whole := await self._read(client, each):
                    self.executor.add([whole], sent_at, waiting=[whole] if each in waiting else [])
        except (psycopg.Error, TimeoutError):
            self.planner.narrow()
            raise
        self._claim_is_uncertain = False
        self.planner.widen()

    async def _read(self, client: WorkerClient, message: Message) -> Message | None:
        """Return a message with its contents.

        Return None if its lock was lost, or if its contents cannot be read and so it was rejected.
        """
        if self._timeouts[message.id] >= MAX_TIMEOUTS:
            why = f"its contents did not come within {TURN_TIMEOUT_S} s, {MAX_TIMEOUTS} times"
            await self._reject(client, message, why)
            return None
        try:
            async with self._turn_timeout():
                whole = await client.contents(message)
        except (TimeoutError, psycopg.errors.QueryCanceled):
            # A timeout on a suspect connection does not count: the turn had very little time.
            self._timeouts[message.id] += not self._is_connection_suspect
            raise
        except psycopg.Error as error:
            if not database.may_be_caused_by_message(error):
                raise
            await self._reject(client, message, database.unclaimable_reason(error))
            return None
        self._timeouts.pop(message.id, None)
        return whole

    async def _reject(self, client: WorkerClient, message: Message, why: str) -> None:
        reason = to_storable_text(why)
        async with self._turn_timeout():
            await client.reject(message, reason)
        self._timeouts.pop(message.id, None)
        log.warning(
            events.MESSAGE_REJECTED, message_id=message.id, topic=message.topic, attempt=message.attempt, reason=reason
        )

    async def _settle_and_claim(
        self, client: WorkerClient, settlements: list[Settlement], plan: TurnPlan
    ) -> TurnResult:
        self._claim_is_uncertain = plan.request is not None
        arm = None if plan.arm_s is None or plan.request is None else (self.executor.topics, plan.arm_s)
        started, logs = self.settle_buffer.take_started(settlements), self.settle_buffer.take_logs()
        try:
            with self.observer.turn(client.conn, settlements, claims=plan.request is not None) as span:
                async with self._turn_timeout():
                    result = await client.settle_and_claim(
                        settlements, plan.request, started=started, logs=logs, arm=arm, disarm=plan.disarm
                    )
                span.record_claimed(result.claimed)
        except BaseException as error:
            self.settle_buffer.runs_uncertain(started)
            if isinstance(error, psycopg.Error) and not _is_transient(error):
                self.settle_buffer.logs_done(logs)  # they may be the reason
            else:
                self.settle_buffer.put_back_logs(logs)
            self.planner.claim_finished(plan)
            self.settle_buffer.put_back(settlements)
            if plan.request is not None and database.may_be_caused_by_message(error):
                self.planner.narrow()
            if isinstance(error, psycopg.Error) and not _is_transient(error):
                await self._settle_one_by_one(client)
            raise
        self._claim_is_uncertain = False
        self.settle_buffer.runs_recorded(started)
        self.settle_buffer.logs_done(logs)
        return result

    async def _settle_one_by_one(self, client: WorkerClient) -> None:
        """The server rejected a batch of settlements, or it cannot be written.

        Settle each alone, so that a faulty one affects no other.
        """
        taken = self.settle_buffer.take()
        for number, each in enumerate(taken):
            try:
                await self._settle_one(client, each)
            except psycopg.Error:
                self.settle_buffer.put_back([each])
            except BaseException:  # a timeout, or the daemon stops: the rest is not settled yet
                self.settle_buffer.put_back(taken[number:])
                raise

    async def _settle_one(self, client: WorkerClient, each: Settlement) -> None:
        try:
            async with self._turn_timeout():
                result = await client.settle_and_claim([each], None)
        except psycopg.Error as error:
            if _is_transient(error):
                raise
            log.warning(
                events.SETTLE_REFUSED,
                message_id=each.message.id,
                topic=each.message.topic,
                kind=each.kind.value,
                reason=str(error),
            )
            result = await self._settle_without_detail(client, each, error)
        self.settle_buffer.done([each], result.lost)
        self.executor.in_flight.remove([each.message])

    async def _settle_without_detail(self, client: WorkerClient, each: Settlement, error: psycopg.Error) -> TurnResult:
        try:
            async with self._turn_timeout():
                return await client.settle_and_claim([_without_detail(each, error)], None)
        except psycopg.Error as last:
            if _is_transient(last):
                raise
            log.error(  # noqa: TRY400 - the server's message is all there is to know
                events.SETTLE_FAILED,
                message_id=each.message.id,
                topic=each.message.topic,
                reason=str(last),
                fix="no result can be stored for this message, so its lock will expire: "
                "look for a trigger or a constraint that is not pgrouse's",
            )
            self.executor.in_flight.abandon(each.message)
            return TurnResult()


def _is_transient(error: psycopg.Error) -> bool:
    return isinstance(error, TRANSIENT) and not (error.sqlstate or "").startswith(PROGRAM_LIMIT_CLASS)


def _without_detail(each: Settlement, error: psycopg.Error) -> Settlement:
    """Return the settlement without the detail that was rejected.

    A completion stays a completion; any other settlement fails with the reason.
    """
    if each.kind is SettleKind.COMPLETE:
        return Settlement(each.message, SettleKind.COMPLETE)
    times = {"after": each.after, "until": each.until}
    given = [f"{name}: {type(value).__qualname__}" for name, value in times.items() if value is not None]
    verdict = "was refused by the server" if error.sqlstate else "cannot be written"
    return Settlement(
        each.message,
        SettleKind.FAIL,
        error=to_storable_text(f"its outcome ({', '.join([each.kind, *given])}) {verdict}: {error}"),
    )
