"""The alerts loop: takes what is due from the outbox and sends it, for each sink by itself, so that a dead one holds up no other.

One deliverer of the fleet has a sink at a time (messages.deliver_next). What it is about to send is written down before; what became of it
is written afterwards. Whatever dies in between, the message is sent again with the same id: at least once, in order.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
import structlog
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from pgrouse import events

from pgrouse.client import database

from pgrouse.config import dsn
from pgrouse.alerts.notice import Notice, Place
from pgrouse.alerts.sink_rules import rules
from pgrouse.alerts.secret import secrets
from pgrouse.alerts.sink import SendFailed, Sink
from pgrouse.alerts.sinks import make
from pgrouse.worker.claim_planner import jittered
from pgrouse.handlers.outcome import clean
from pgrouse.worker.wake_event import Signal, Signals

if TYPE_CHECKING:
    from pgrouse.config.alerts import Alerts, AlertSink
    from pgrouse.worker.loop import Loop

log = structlog.get_logger()

# What a lost notification costs at most, and how soon another deliverer steps in.
POLL_S = 5.0
# Where messages die one by one, each says so: that many looks are not needed.
GATHER_S = 0.1
# How long a sink is held beyond the time of one send: until then whoever has it has said what became of it, or is dead or frozen.
HOLD_S = 15.0
DATABASE_TIMEOUT_S = 120
SETTLE_TIMEOUT_S = 15
# When told to stop, how long the message on its way may take to arrive.
LAST_SEND_S = 5.0
RETRY_FIRST_S, RETRY_LAST_S = 1.0, 300.0
# A sink may name a time to come again; not one that looks like never.
RETRY_ASKED_S = 3600.0
# How often a sink may refuse one and the same message before the next one has its turn.
REFUSALS = 10
# Sends that never came back and cannot be stopped: so many threads, and no more.
HANGING = 3

# How old it is says the server, whose clock has dated it: that of this machine may be wrong by days.
NEXT = """
    SELECT n.*, pg_catalog.current_database() AS database,
           extract(epoch FROM messages.now() OPERATOR(pg_catalog.-) n.created_at)::double precision AS age_s
    FROM messages.deliver_next(%s, %s, %s, %s, pg_catalog.make_interval(secs => %s)) AS n
"""
SETTLE = "SELECT messages.settle_delivery(%s, %s, %s, %s, pg_catalog.make_interval(secs => %s), %s)"


def loops(db: database.Database, alerts: Alerts, holder: str, dashboard: str | None = None) -> list[Loop]:
    """Return the loops that deliver to every sink, and the one that hears when there is something to do; `dashboard` is its address, for links."""
    due = Signals()
    return [Ear(db, due), *(Deliverer(db, alerts, each, holder, due.new(), dashboard) for each in alerts.to)]


class Ear:
    """Listens for new alerts, on a connection that does nothing else."""

    name = "alerts"

    def __init__(self, db: database.Database, due: Signals) -> None:
        self.db, self.due = db, due
        self._conn: psycopg.AsyncConnection | None = None

    async def step(self) -> float:
        """Connect if needed, then wake the deliverers whenever something is said. What: they look for themselves."""
        if self._conn is None:
            self._conn = await self.db.connect_listener("dead_message", "alert")
            self.due.set()
        async for _ in self._conn.notifies(timeout=1.0):
            self.due.set()
        return 0

    async def reset(self) -> None:
        """Close the connection."""
        conn, self._conn = self._conn, None
        await database.close(conn)


@dataclass(frozen=True)
class Outcome:
    """What became of one attempt to send; error None: it has arrived."""

    error: str | None = None
    refused: bool = False
    retry_after_s: float | None = None


class Deliverer:
    """Delivers to one sink.

    Args:
        settings: the sink.
        holder: the name of this process among all that deliver.
        due: set when there may be something new.
        dashboard: its address, for links.
    """

    def __init__(
        self,
        db: database.Database,
        alerts: Alerts,
        settings: AlertSink,
        holder: str,
        due: Signal,
        dashboard: str | None = None,
    ) -> None:
        self.db, self.settings, self.holder, self.due = db, settings, holder, due
        self.name = f"alerts to {settings.name}"
        self.sink: Sink | None = None
        self.rules = Jsonb(rules(alerts, settings))
        self.environment, self.dashboard = alerts.environment, dashboard
        self.timeout_s = settings.timeout.total_seconds()
        self.give_up_s = alerts.give_up.total_seconds()
        self._secrets = secrets(settings)
        self._hanging: set[threading.Thread] = set()
        self._conn: psycopg.AsyncConnection | None = None

    async def step(self) -> float:
        """Send one message if one is due, else wait until one may be."""
        if self._conn is None:
            self._conn = await self.db.connect(self.name)
        async with asyncio.timeout(DATABASE_TIMEOUT_S):
            got = await self._next(self._conn)
        if got["id"] is None:
            wait_s = jittered(POLL_S) if got["wait_s"] is None else min(jittered(POLL_S), got["wait_s"])
            return GATHER_S if await self.due.wait(max(0.01, wait_s)) else 0
        await self._deliver(self._conn, got)
        return 0

    async def reset(self) -> None:
        """Close the connection. The database sees it gone, and lets another have the sink at once."""
        conn, self._conn = self._conn, None
        await database.close(conn)

    async def _next(self, conn: psycopg.AsyncConnection) -> dict[str, Any]:
        cursor = conn.cursor(row_factory=dict_row)
        hold_s = self.timeout_s + HOLD_S
        await cursor.execute(NEXT, [self.settings.name, self.settings.type, self.holder, self.rules, hold_s])
        row = await cursor.fetchone()
        assert row is not None  # noqa: S101 - a function with OUT parameters has one row
        return row

    async def _deliver(self, conn: psycopg.AsyncConnection, got: dict[str, Any]) -> None:
        notice = self._notice(got)
        sending = asyncio.ensure_future(self._send(notice))
        try:
            outcome = await asyncio.shield(sending)
        except asyncio.CancelledError:
            # Told to stop: what arrives now need not be sent again.
            await asyncio.wait([sending], timeout=LAST_SEND_S)
            if sending.done():
                with suppress(psycopg.Error, TimeoutError):
                    await self._settle(conn, got, sending.result())
            raise
        await self._settle(conn, got, outcome)

    def _notice(self, got: dict[str, Any]) -> Notice:
        return Notice(
            str(got["id"]),
            self.settings.name,
            got["seq"],
            got["attempt"],
            got["created_at"],
            got["message"],
            self.settings.title,
            self.settings.body,
            Place(self.environment, got["database"], self.dashboard),
        )

    async def _send(self, notice: Notice) -> Outcome:
        """Send it on a thread that may hang; say what became of it within the time of the sink."""
        self._hanging = {thread for thread in self._hanging if thread.is_alive()}
        if len(self._hanging) >= HANGING:
            return Outcome(f"{HANGING} earlier sends still hang")
        thread, answer = _on_thread(lambda: self._attempt(notice), self.name)
        try:
            # The sink ends it by itself; some cannot.
            async with asyncio.timeout(self.timeout_s + 1):
                return await asyncio.shield(answer)
        except TimeoutError:
            self._hanging.add(thread)
            return Outcome(f"no answer within {self.timeout_s:g}s")

    def _attempt(self, notice: Notice) -> Outcome:
        """Send it, and take whatever goes wrong as an outcome: what a message says must not end the daemon."""
        try:
            self.sink = self.sink or make(self.settings)
            self.sink.send(notice, self.timeout_s)
        except SendFailed as error:
            return Outcome(self._reason(str(error)), error.refused, error.retry_after_s)
        except Exception as error:  # noqa: BLE001
            return Outcome(self._reason(f"{type(error).__name__}: {error}"))
        return Outcome()

    def _reason(self, text: str) -> str:
        """Return a reason that may be kept: without secrets, and without what no column can hold, which a sink may well answer."""
        return clean(dsn.redact(text, self._secrets))

    async def _settle(self, conn: psycopg.AsyncConnection, got: dict[str, Any], outcome: Outcome) -> None:
        retry_s, aside = self._verdict(got, outcome)
        async with asyncio.timeout(SETTLE_TIMEOUT_S):
            cursor = await conn.execute(
                SETTLE, [self.settings.name, got["fence"], got["id"], outcome.error, retry_s, aside]
            )
            settled = await cursor.fetchone() == (True,)
        self._tell(got, outcome, retry_s, settled=settled, aside=aside)

    def _verdict(self, got: dict[str, Any], outcome: Outcome) -> tuple[float, bool]:
        """Return when to try again, in seconds, and whether not to try again at all."""
        aside = outcome.error is not None and (
            got["age_s"] > self.give_up_s or (outcome.refused and got["attempt"] >= REFUSALS)
        )
        asked_s = min(outcome.retry_after_s or 0.0, RETRY_ASKED_S)
        return max(retry_s(got["attempt"]), asked_s), aside

    def _tell(self, got: dict[str, Any], outcome: Outcome, wait_s: float, *, settled: bool, aside: bool) -> None:
        attempt = got["attempt"]
        facts = {"sink": self.settings.name, "id": str(got["id"]), "attempt": attempt}
        if not settled:
            log.warning(
                events.ALERT_OVERTAKEN, **facts, meaning="somebody else delivers to this sink; it may arrive twice"
            )
        elif outcome.error is None:
            log.info(events.ALERT_DELIVERED, **facts, count=got["message"]["count"])
        elif aside:
            log.error(
                events.ALERT_PUT_ASIDE, **facts, reason=outcome.error, mend="`pgrouse alert replay` sends it again"
            )
        elif attempt & (attempt - 1) == 0:
            log.warning(events.ALERT_FAILED, **facts, reason=outcome.error, retry_s=round(wait_s, 1))


def retry_s(attempt: int) -> float:
    """Return how long to wait after so many attempts: doubling up to five minutes, the upper half of it by chance."""
    most = min(RETRY_LAST_S, RETRY_FIRST_S * 2 ** min(attempt - 1, 20))
    return random.uniform(most / 2, most)  # noqa: S311 - nothing to guess


def _on_thread(call: Callable[[], Outcome], name: str) -> tuple[threading.Thread, asyncio.Future[Outcome]]:
    """Run a call on a thread that the end of the process does not wait for."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Outcome] = loop.create_future()

    def set_answer(outcome: Outcome) -> None:
        if not answer.done():
            answer.set_result(outcome)

    def run() -> None:
        outcome = call()
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(set_answer, outcome)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread, answer
