"""Delivers alerts: takes what is due from the outbox and sends it.

Each sink is independent, so that a sink that is down delays no other.

One process at a time delivers to a sink (the function claim_delivery). What it is about to send is recorded before, and
the result afterwards. If the process dies in between, the message is sent again with the same id: at least once, in
order.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import psycopg

from pgrouse.alerts.heartbeat import AlertHeartbeat
from pgrouse.alerts.notice import Notice, QueueInfo
from pgrouse.alerts.sink import SendFailed
from pgrouse.alerts.sinks import read_sinks
from pgrouse.client.call import Call, run_async, value
from pgrouse.client.calls.monitoring.alert import ClaimedDelivery, claim_delivery, settle_delivery
from pgrouse.client.connection import database
from pgrouse.client.connection.listening import ListenConnection
from pgrouse.client.queries import clock
from pgrouse.config import dsn
from pgrouse.logging import events
from pgrouse.logging.event_logger import log
from pgrouse.process.backoff import jittered
from pgrouse.process.wake_event import WakeEvent, WakeEvents
from pgrouse.values.error_line import to_storable_text

if TYPE_CHECKING:
    from pgrouse.alerts.sink import SinkTable
    from pgrouse.config.alerts import AlertsSettings
    from pgrouse.config.config import Config
    from pgrouse.process.loop import Loop


def sink_rules(alerts: AlertsSettings, sink: SinkTable) -> dict[str, Any]:
    """Return the rules of one sink: its own, else those of `[alerts]`.

    Times are in seconds. Rules that are not set are left out.
    """
    times = {
        name: own if (own := getattr(sink, name)) is not None else getattr(alerts, name)
        for name in ("group_wait", "group_interval", "repeat_interval")
    }
    given = {
        "kinds": sink.kinds or alerts.kinds,
        "topics": sink.topics,
        "group_by": alerts.group_by if sink.group_by is None else sink.group_by,
        "escalate_after": sink.escalate_after and sink.escalate_after.total_seconds(),
        "escalate_count": sink.escalate_count,
        "rate_limit_per_minute": sink.rate_limit_per_minute,
        "digest_over": sink.digest_over,
        "most": sink.max_groups,
        **{name: value.total_seconds() for name, value in times.items()},
    }
    return {name: value for name, value in given.items() if value or name in ("group_by", "digest_over", *times)}


# The longest delay by a lost notification, and how soon another process takes over.
POLL_S = 5.0
# Messages that die one by one each notify; this collects them into one query.
GATHER_S = 0.1
# How long a sink is held beyond the timeout of one send: after that its process has reported the result, or is dead or
# frozen.
SINK_HOLD_MARGIN_S = 15.0
DATABASE_TIMEOUT_S = 120
SETTLE_TIMEOUT_S = 15
# At shutdown, how long a send that is under way may take.
LAST_SEND_S = 5.0
RETRY_FIRST_S, RETRY_LAST_S = 1.0, 300.0
# A sink may ask for a later retry, up to this.
MAX_RETRY_AFTER_S = 3600.0
# How often a sink may refuse a message before the next one is sent.
MAX_REFUSALS = 10
# The maximum number of threads whose send hangs and cannot be stopped.
MAX_HANGING = 3

DATABASE: Call[str] = Call(b"SELECT pg_catalog.current_database()", [], value)


def delivery_loops(db: database.Database, settings: Config, holder: str) -> list[Loop]:
    """Return the loops that deliver, one per sink, the listener that wakes them, and the heartbeat if there is one."""
    due, alerts, dashboard = WakeEvents(), settings.alerts, settings.web.url
    return [
        AlertListener(db, due),
        *(AlertDelivery(db, alerts, each, holder, due.new(), dashboard) for each in read_sinks(settings)),
        *([AlertHeartbeat(db, alerts)] if alerts.heartbeat else []),
    ]


class AlertListener:
    """Listens for new alerts, on a connection that does nothing else."""

    name = "alerts"

    def __init__(self, db: database.Database, due: WakeEvents) -> None:
        self.due = due
        self._connection = ListenConnection(db, self.name, "dead_message", "alert", on_connect=due.set)

    async def step(self) -> float:
        """Connect if needed, or wake the deliveries at each notification. They query what is due themselves."""
        if await self._connection.receive(1.0):
            self.due.set()
        return 0

    async def reset(self) -> None:
        """Close the connection."""
        await self._connection.close()


@dataclass(frozen=True)
class DueDelivery:
    """A notification that is to be sent now.

    Attributes:
        fence: of the claim.
        attempt: how often it was sent, with this time.
        message: its contents.
        age_s: by the server, whose clock dated it: the clock of this machine may be wrong by days.
    """

    id: UUID
    fence: int
    seq: int
    attempt: int
    created_at: datetime
    message: dict[str, Any]
    age_s: float
    database: str


@dataclass(frozen=True)
class DeliveryResult:
    """The result of one attempt to send; error None: it was delivered."""

    error: str | None = None
    refused: bool = False
    retry_after_s: float | None = None


class AlertDelivery:
    """Delivers to one sink.

    Args:
        settings: the sink.
        holder: the name of this process among all that deliver.
        due: set when there may be something new.
        dashboard: its URL, for links.
    """

    def __init__(
        self,
        db: database.Database,
        alerts: AlertsSettings,
        settings: SinkTable,
        holder: str,
        due: WakeEvent,
        dashboard: str | None = None,
    ) -> None:
        self.db, self.settings, self.holder, self.due = db, settings, holder, due
        self.name = f"alerts to {settings.name}"
        self.send = settings.send
        self.rules = json.dumps(sink_rules(alerts, settings))
        self.environment, self.dashboard = alerts.environment, dashboard
        self.timeout_s = settings.timeout.total_seconds()
        self.give_up_s = alerts.give_up_after.total_seconds()
        self._secrets = settings.secrets()
        self._hanging: set[threading.Thread] = set()
        self._conn: psycopg.AsyncConnection | None = None

    async def step(self) -> float:
        """Send one message if one is due, else wait until one may be."""
        if self._conn is None:
            self._conn = await self.db.connect(self.name)
        async with asyncio.timeout(DATABASE_TIMEOUT_S):
            claimed = await self._claim(self._conn)
            due = await self._due(self._conn, claimed)
        if due is None:
            wait_s = jittered(POLL_S) if claimed.wait_s is None else min(jittered(POLL_S), claimed.wait_s)
            return GATHER_S if await self.due.wait(max(0.01, wait_s)) else 0
        await self._deliver(self._conn, due)
        return 0

    async def reset(self) -> None:
        """Close the connection. The database notices, and another process can take over the sink at once."""
        conn, self._conn = self._conn, None
        await database.close(conn)

    async def _claim(self, conn: psycopg.AsyncConnection) -> ClaimedDelivery:
        hold_s = self.timeout_s + SINK_HOLD_MARGIN_S
        return await run_async(
            conn, claim_delivery(self.settings.name, self.settings.type, self.holder, self.rules, hold_s)
        )

    async def _due(self, conn: psycopg.AsyncConnection, claimed: ClaimedDelivery) -> DueDelivery | None:
        """Return what was claimed, with its age; None if there is nothing to send."""
        match claimed:
            case ClaimedDelivery(
                id=UUID() as id_,
                fence=int() as fence,
                seq=int() as seq,
                attempt=int() as attempt,
                created_at=datetime() as created_at,
                message_json=str() as text,
            ):
                age_s = await run_async(conn, clock.age_s(created_at))
                name = await run_async(conn, DATABASE)
                return DueDelivery(id_, fence, seq, attempt, created_at, json.loads(text), age_s, name)
            case _:
                return None

    async def _deliver(self, conn: psycopg.AsyncConnection, due: DueDelivery) -> None:
        notice = self._notice(due)
        sending = asyncio.ensure_future(self._send(notice))
        try:
            outcome = await asyncio.shield(sending)
        except asyncio.CancelledError:
            # Shutting down: a message that is delivered now need not be sent again.
            await asyncio.wait([sending], timeout=LAST_SEND_S)
            if sending.done():
                with suppress(psycopg.Error, TimeoutError):
                    await self._settle(conn, due, sending.result())
            raise
        await self._settle(conn, due, outcome)

    def _notice(self, due: DueDelivery) -> Notice:
        return Notice(
            str(due.id),
            self.settings.name,
            due.seq,
            due.attempt,
            due.created_at,
            due.message,
            self.settings.title,
            self.settings.body,
            QueueInfo(self.environment, due.database, self.dashboard),
        )

    async def _send(self, notice: Notice) -> DeliveryResult:
        """Send it on a thread that may hang; return the result within the sink's timeout."""
        self._hanging = {thread for thread in self._hanging if thread.is_alive()}
        if len(self._hanging) >= MAX_HANGING:
            return DeliveryResult(f"{MAX_HANGING} earlier sends still hang")
        thread, answer = _on_thread(lambda: self._attempt(notice), self.name)
        try:
            # Most sinks have a timeout of their own; some cannot.
            async with asyncio.timeout(self.timeout_s + 1):
                return await asyncio.shield(answer)
        except TimeoutError:
            self._hanging.add(thread)
            return DeliveryResult(f"no answer within {self.timeout_s:g}s")

    def _attempt(self, notice: Notice) -> DeliveryResult:
        """Send it, and return any error as a result: the content of a message must not end the daemon."""
        try:
            self.send(notice, self.timeout_s)
        except SendFailed as error:
            return DeliveryResult(self._reason(str(error)), error.refused, error.retry_after_s)
        except Exception as error:  # noqa: BLE001
            return DeliveryResult(self._reason(f"{type(error).__name__}: {error}"))
        return DeliveryResult()

    def _reason(self, text: str) -> str:
        """Return a reason that may be stored: without secrets, and without characters that no column can hold."""
        return to_storable_text(dsn.redact(text, self._secrets))

    async def _settle(self, conn: psycopg.AsyncConnection, due: DueDelivery, outcome: DeliveryResult) -> None:
        retry_s, abandon = self._next_step(due, outcome)
        async with asyncio.timeout(SETTLE_TIMEOUT_S):
            call = settle_delivery(self.settings.name, due.fence, due.id, outcome.error, retry_s, abandon)
            settled = await run_async(conn, call)
        self._log_result(due, outcome, retry_s, settled=settled, abandon=abandon)

    def _next_step(self, due: DueDelivery, outcome: DeliveryResult) -> tuple[float, bool]:
        """Return when to try again, in seconds, and whether to abandon it instead."""
        abandon = outcome.error is not None and (
            due.age_s > self.give_up_s or (outcome.refused and due.attempt >= MAX_REFUSALS)
        )
        asked_s = min(outcome.retry_after_s or 0.0, MAX_RETRY_AFTER_S)
        return max(retry_s(due.attempt), asked_s), abandon

    def _log_result(
        self, due: DueDelivery, outcome: DeliveryResult, wait_s: float, *, settled: bool, abandon: bool
    ) -> None:
        attempt = due.attempt
        facts = {"sink": self.settings.name, "id": str(due.id), "attempt": attempt}
        if not settled:
            log.warning(
                events.ALERT_LEASE_LOST, **facts, meaning="another process delivers to this sink; it may arrive twice"
            )
        elif outcome.error is None:
            log.info(events.ALERT_DELIVERED, **facts, count=due.message["count"])
        elif abandon:
            log.error(
                events.ALERT_ABANDONED, **facts, reason=outcome.error, fix="`pgrouse alert replay` sends it again"
            )
        elif attempt & (attempt - 1) == 0:
            log.warning(events.ALERT_FAILED, **facts, reason=outcome.error, retry_s=round(wait_s, 1))


def retry_s(attempt: int) -> float:
    """Return how long to wait after this many attempts: doubling up to five minutes, the upper half of it random."""
    most = min(RETRY_LAST_S, RETRY_FIRST_S * 2 ** min(attempt - 1, 20))
    return random.uniform(most / 2, most)  # noqa: S311 - nothing to guess


def _on_thread(
    call: Callable[[], DeliveryResult], name: str
) -> tuple[threading.Thread, asyncio.Future[DeliveryResult]]:
    """Run a call on a thread that does not delay the end of the process."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[DeliveryResult] = loop.create_future()

    def set_answer(outcome: DeliveryResult) -> None:
        if not answer.done():
            answer.set_result(outcome)

    def run() -> None:
        outcome = call()
        with suppress(RuntimeError):  # the loop is closed: nothing waits for it
            loop.call_soon_threadsafe(set_answer, outcome)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread, answer
