"""A lane: one connection on which a turn settles what ended and claims what comes next, in one round trip and one transaction.

A daemon runs two: while the server works for one, the handlers of the other's messages run.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import structlog

from pgrouse import events

from pgrouse.client import database
from pgrouse.worker.claim_planner import Claimer, Plan
from pgrouse.worker.executor import Crew
from pgrouse.client.message import Message
from pgrouse.handlers.outcome import Ended, Kind, clean
from pgrouse.worker.settle_buffer import Settler
from pgrouse.worker.wake_event import Signal
from pgrouse.client.worker_client import Exchange, Store

log = structlog.get_logger()

# A turn takes milliseconds. One that takes so long waits for a lock that somebody holds, or for a server that is gone.
TURN_TIMEOUT_S = 30
# One that is under way when the connection becomes doubtful gets so much more.
DOUBTFUL_TURN_S = 2
# How often a message may not come within the time of a turn, all by itself.
MOST_TIMEOUTS = 2
# What another try may cure. Everything else that the server says of a settle is said of one message in it.
CURABLE = (psycopg.OperationalError, psycopg.errors.UniqueViolation)
# The errors of this class are psycopg's OperationalError too, but say that a value is too large: the next try would end the same.
PROGRAM_LIMIT = "54"


class Lane:
    """One lane of a daemon.

    Args:
        number: 0 is the first lane, which looks and falls asleep for all.
        signal: set when there may be something to do.
    """

    def __init__(
        self, number: int, db: database.Database, claimer: Claimer, settler: Settler, crew: Crew, signal: Signal
    ) -> None:
        self.name = f"lane-{number}"
        self.worker = f"{db.worker}/{number}"
        self.first = number == 0
        self.db, self.claimer, self.settler, self.crew, self.signal = db, claimer, settler, crew, signal
        self._conn: psycopg.AsyncConnection | None = None
        self._claim_is_uncertain = False
        self._conn_is_doubtful = False
        self._deadline: asyncio.Timeout | None = None
        self._timeouts: Counter[int] = Counter()  # of messages that did not come in time, by their ids

    async def step(self) -> float:
        """One turn; waits for a signal if there is nothing to do."""
        store = await self._store()
        ended = self.settler.take()
        plan = self.claimer.plan(first=self.first, settling=bool(ended))
        if ended or plan.want is not None or plan.disarm or self.settler.begun:
            await self._turn(store, ended, plan)
        else:
            await self.signal.wait(self.claimer.wait_s() if self.first else None)
        return 0

    async def reset(self) -> None:
        """Close the connection."""
        conn, self._conn = self._conn, None
        self._conn_is_doubtful = False
        await database.close(conn)

    def doubt(self) -> None:
        """Another connection proved dead, so this one may be: wait no longer for what was sent, and take a new one for the rest."""
        self._conn_is_doubtful = True
        if self._deadline and not self._deadline.expired():
            soon = asyncio.get_running_loop().time() + DOUBTFUL_TURN_S
            self._deadline.reschedule(min(soon, self._deadline.when() or soon))

    @property
    def claims(self) -> bool:
        """Whether a claim is on its way, or was and nobody knows what it locked."""
        return self._claim_is_uncertain

    @asynccontextmanager
    async def _in_time(self) -> AsyncIterator[None]:
        seconds = DOUBTFUL_TURN_S if self._conn_is_doubtful else TURN_TIMEOUT_S
        try:
            async with asyncio.timeout(seconds) as self._deadline:
                yield
        finally:
            self._deadline = None

    async def _store(self) -> Store:
        if self._conn_is_doubtful:
            await self.reset()
        if self._conn is None:
            self._conn = await self.db.connect(self.name)
        store = Store(self._conn, self.worker, sleeper=self.db.worker)
        if self._claim_is_uncertain:
            async with self._in_time():
                await store.release_forgotten(self.crew.hand.ids())
            self._claim_is_uncertain = False
            self.settler.signals.set()
        return store

    async def _turn(self, store: Store, ended: list[Ended], plan: Plan) -> None:
        began, wakes = self.claimer.clock(), self.claimer.wakes
        got = await self._exchange(store, ended, plan)
        self.settler.done(ended, got.lost)
        self.crew.hand.let_go(each.message for each in ended)
        self.claimer.heard(plan, got, began=began, wakes=wakes)
        if self.claimer.held_back and not self.first:
            # When to look again may have changed, and that is what the first lane waits for.
            self.settler.signals.set()
        if plan.want is not None:
            self.settler.meters.claimed(got.claimed, plan.source, plan.slept_s)
        if got.claimed:
            waiting = got.claimed[plan.want.start :] if plan.want and plan.want.start is not None else []
            if plan.want and not plan.want.contents:
                await self._add_singly(store, got.claimed, began, waiting)
            else:
                self.crew.add(got.claimed, began, waiting=waiting)
            # Most handlers end before this returns, so that the next turn settles them and claims in one.
            await asyncio.sleep(0)

    async def _add_singly(self, store: Store, claimed: list[Message], began: float, waiting: list[Message]) -> None:
        """Read the contents of what was claimed without them, and begin with each that can be read; what cannot be read is rejected.

        What was not read when this fails is given back by the next turn.
        """
        self._claim_is_uncertain = True
        try:
            for each in claimed:
                if whole := await self._read(store, each):
                    self.crew.add([whole], began, waiting=[whole] if each in waiting else [])
        except (psycopg.Error, TimeoutError):
            self.claimer.narrow()
            raise
        self._claim_is_uncertain = False
        self.claimer.widen()

    async def _read(self, store: Store, message: Message) -> Message | None:
        """Return a message with its contents; None if it is lost, or was rejected since they cannot be read."""
        if self._timeouts[message.id] >= MOST_TIMEOUTS:
            why = f"its contents did not come within {TURN_TIMEOUT_S} s, {MOST_TIMEOUTS} times"
            await self._reject(store, message, why)
            return None
        try:
            async with self._in_time():
                whole = await store.contents(message)
        except (TimeoutError, psycopg.errors.QueryCanceled):
            # Of a connection that another one made doubtful it says nothing, and it had next to no time.
            self._timeouts[message.id] += not self._conn_is_doubtful
            raise
        except psycopg.Error as error:
            if not database.may_be_of_a_message(error):
                raise
            await self._reject(store, message, database.why_not_handed_out(error))
            return None
        self._timeouts.pop(message.id, None)
        return whole

    async def _reject(self, store: Store, message: Message, why: str) -> None:
        reason = clean(why)
        async with self._in_time():
            await store.reject(message, reason)
        self._timeouts.pop(message.id, None)
        log.warning(
            events.MESSAGE_REJECTED, message_id=message.id, topic=message.topic, attempt=message.attempt, reason=reason
        )

    async def _exchange(self, store: Store, ended: list[Ended], plan: Plan) -> Exchange:
        self._claim_is_uncertain = plan.want is not None
        arm = None if plan.arm_s is None or plan.want is None else (self.crew.topics, plan.arm_s)
        begun = self.settler.take_begun(ended)
        try:
            async with self._in_time():
                got = await store.exchange(ended, plan.want, begun=begun, arm=arm, disarm=plan.disarm)
        except BaseException as error:
            self.settler.untold(begun)
            self.claimer.ended(plan)
            self.settler.put_back(ended)
            if plan.want is not None and database.may_be_of_a_message(error):
                self.claimer.narrow()
            if isinstance(error, psycopg.Error) and not _is_curable(error):
                await self._settle_singly(store)
            raise
        self._claim_is_uncertain = False
        self.settler.told(begun)
        return got

    async def _settle_singly(self, store: Store) -> None:
        """What a batch said was refused, or cannot be written: settle each alone, so that the one it is about harms nobody else."""
        taken = self.settler.take()
        for number, each in enumerate(taken):
            try:
                await self._settle_one(store, each)
            except psycopg.Error:
                self.settler.put_back([each])
            except BaseException:  # out of time, or told to stop: of the others nothing was said yet
                self.settler.put_back(taken[number:])
                raise

    async def _settle_one(self, store: Store, each: Ended) -> None:
        try:
            async with self._in_time():
                got = await store.exchange([each], None)
        except psycopg.Error as error:
            if _is_curable(error):
                raise
            log.warning(
                events.SETTLE_REFUSED,
                message_id=each.message.id,
                topic=each.message.topic,
                kind=each.kind.value,
                reason=str(error),
            )
            got = await self._settle_plainly(store, each, error)
        self.settler.done([each], got.lost)
        self.crew.hand.let_go([each.message])

    async def _settle_plainly(self, store: Store, each: Ended, error: psycopg.Error) -> Exchange:
        try:
            async with self._in_time():
                return await store.exchange([_plain(each, error)], None)
        except psycopg.Error as last:
            if _is_curable(last):
                raise
            log.error(  # noqa: TRY400 - what the server said is all there is to know
                events.SETTLE_GIVEN_UP,
                message_id=each.message.id,
                topic=each.message.topic,
                reason=str(last),
                mend="nothing can be said of this message: its lock will expire. Is there a trigger or a constraint that is not pgrouse's?",
            )
            self.crew.hand.give_up(each.message)
            return Exchange()


def _is_curable(error: psycopg.Error) -> bool:
    return isinstance(error, CURABLE) and not (error.sqlstate or "").startswith(PROGRAM_LIMIT)


def _plain(each: Ended, error: psycopg.Error) -> Ended:
    """Return the same end without what was refused: what is done stays done, all else fails with the reason."""
    if each.kind is Kind.COMPLETE:
        return Ended(each.message, Kind.COMPLETE)
    times = {"after": each.after, "until": each.until}
    given = [f"{name}: {type(value).__qualname__}" for name, value in times.items() if value is not None]
    verdict = "was refused by the server" if error.sqlstate else "cannot be written"
    return Ended(
        each.message, Kind.FAIL, error=clean(f"its outcome ({', '.join([each.kind, *given])}) {verdict}: {error}")
    )
