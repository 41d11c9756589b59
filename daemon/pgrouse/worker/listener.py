"""The listener: a connection of its own that does nothing but LISTEN, and the proof that it hears.

A notification can be lost without any error: behind a pooler in transaction mode LISTEN succeeds and nothing ever arrives; behind a proxy
the socket stays open while the server is gone. So another connection sends a ping that must arrive. While it does not, or cannot be sent since the
server's queue of notifications is full, the daemon is in the mode DEGRADED: it says so, polls each second, and is armed for nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from secrets import token_hex

import psycopg
import structlog

from pgrouse import events

from pgrouse.client import database
from pgrouse.worker.wake_event import Signal

log = structlog.get_logger()

NEW_MESSAGE = "new_message"
CANCELLED = "cancelled"
# A policy was changed: what a pause or a limit held back may be ready now.
TOPIC_CHANGED = "topic_changed"
# A schedule was changed: it may be due sooner than the ticker knows.
SCHEDULE_CHANGED = "schedule_changed"
CHANNELS = (NEW_MESSAGE, CANCELLED, TOPIC_CHANGED, SCHEDULE_CHANGED)
# By the function that rings, too: what it does not send would not have been rung for either.
PING = b"SELECT messages.notify(%s, ARRAY[''])"
PING_EVERY_S = 5.0
PING_TIMEOUT_S = 5.0


class Mode(Enum):
    """Whether notifications are known to arrive."""

    CONNECTING = "connecting"
    LISTENING = "listening"
    DEGRADED = "degraded"


class Ping(Enum):
    """What became of a ping; its value is what to say of one that was not heard, and what to do about it."""

    HEARD = ("", "")
    UNHEARD = (
        "a notification that was sent did not arrive: is the listener's connection made through a pooler?",
        "set database.listen_dsn to a direct connection; until then messages are found by polling",
    )
    UNSENT = (
        "the server's queue of notifications is full: a session that listens has been in one transaction for long",
        "end that session: `pgrouse doctor` names it; until then messages are found by polling",
    )


class Listener:
    """Hears the notifications of one daemon.

    Args:
        on_new: called for each notification that may mean new messages.
        on_cancelled: called when somebody says that a message was cancelled. Anyone may say so: it is a reason to look, no more.
        on_topic_changed: called when somebody says that a topic's policy, or a schedule, was changed.
        on_mode: called with True when notifications are known to arrive, with False when not.
    """

    name = "listener"

    def __init__(
        self,
        db: database.Database,
        on_new: Callable[[], None],
        on_cancelled: Callable[[], None],
        on_topic_changed: Callable[[], None],
        on_mode: Callable[[bool], None],
    ) -> None:
        self.db, self.on_new, self.on_cancelled, self.on_mode = db, on_new, on_cancelled, on_mode
        self.on_topic_changed = on_topic_changed
        self.mode = Mode.CONNECTING
        # A channel of our own for pings, so that they wake nobody else.
        self.ping_channel = f"ping_{token_hex(8)}"
        self.pong = asyncio.Event()
        self.fresh = Signal()
        self._conn: psycopg.AsyncConnection | None = None
        self._deaf = False

    async def step(self) -> float:
        """Connect if needed, then hear what comes within a second."""
        if self._deaf:
            await self.reset()
        if self._conn is None:
            self._conn = await self._connect()
        async for notify in self._conn.notifies(timeout=1.0):
            self._hear(notify.channel)
        return 0

    async def reset(self) -> None:
        """Close the connection; from now on nothing is heard."""
        conn, self._conn = self._conn, None
        self._deaf = False
        await database.close(conn)
        if self.mode is Mode.LISTENING:
            self._enter(Mode.CONNECTING)

    def judge(self, ping: Ping) -> None:
        """Take in what became of the last ping; one that was sent and did not arrive is a reason to connect anew."""
        if self._conn is not None:
            self._deaf = ping is Ping.UNHEARD
            self._enter(Mode.LISTENING if ping is Ping.HEARD else Mode.DEGRADED, ping)

    @property
    def connected(self) -> bool:
        """Whether there is a connection that a ping could arrive on."""
        return self._conn is not None

    async def _connect(self) -> psycopg.AsyncConnection:
        conn = await self.db.connect_listener(*CHANNELS, self.ping_channel)
        log.debug(events.LISTENER_CONNECTED)
        # Only a ping proves that it hears; until then what was published meanwhile is found by looking.
        self.on_new()
        self.fresh.set()
        return conn

    def _hear(self, channel: str) -> None:
        if channel == self.ping_channel:
            self.pong.set()
        elif channel == CANCELLED:
            self.on_cancelled()
        elif channel == SCHEDULE_CHANGED:
            self.on_topic_changed()
        elif channel == TOPIC_CHANGED:
            self.on_topic_changed()
            self.on_new()
        else:
            self.on_new()

    def _enter(self, mode: Mode, ping: Ping = Ping.UNHEARD) -> None:
        if mode is self.mode:
            return
        reason, mend = ping.value
        before, self.mode = self.mode, mode
        if mode is Mode.DEGRADED:
            log.warning(events.LISTENER_DEGRADED, reason=reason, mend=mend)
        elif mode is Mode.LISTENING and before is Mode.DEGRADED:
            log.info(events.LISTENER_RESTORED)
        self.on_mode(mode is Mode.LISTENING)


class Prober:
    """Sends the listener a ping from another connection, now and then."""

    name = "prober"

    def __init__(self, db: database.Database, listener: Listener) -> None:
        self.db, self.listener = db, listener
        self._conn: psycopg.AsyncConnection | None = None

    async def step(self) -> float:
        """One ping, at once after the listener has connected."""
        await self.listener.fresh.wait(PING_EVERY_S)
        if not self.listener.connected:
            return 0
        if self._conn is None:
            self._conn = await self.db.connect("prober")
        self.listener.pong.clear()
        ping = await self._ping()
        self.listener.judge(ping)
        if ping is Ping.UNHEARD:
            # Which of the two connections is dead nobody knows.
            await self.reset()
        return 0

    async def reset(self) -> None:
        """Close the connection."""
        conn, self._conn = self._conn, None
        await database.close(conn)

    async def _ping(self) -> Ping:
        assert self._conn is not None  # noqa: S101 - step() opened it
        try:
            async with asyncio.timeout(PING_TIMEOUT_S):
                cursor = await self._conn.execute(PING, [self.listener.ping_channel])
                if await cursor.fetchone() != (True,):
                    return Ping.UNSENT
                await self.listener.pong.wait()
        except TimeoutError:
            return Ping.UNHEARD
        except psycopg.errors.ProgramLimitExceeded:  # it became full in this moment
            return Ping.UNSENT
        return Ping.HEARD
