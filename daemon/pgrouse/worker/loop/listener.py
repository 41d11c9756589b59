"""The listener: a connection that only listens, and the proof that it receives notifications.

A notification can be lost without an error: behind a pooler in transaction mode LISTEN succeeds and nothing ever
arrives; behind a proxy the socket stays open while the server is gone. So another connection sends a ping that must
arrive. While a ping does not arrive, or cannot be sent because the server's notification queue is full, the daemon is
in the mode DEGRADED: it logs that, polls every second, and does not arm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from secrets import token_hex

import psycopg

from pgrouse.client.call import run_async
from pgrouse.client.calls.processing.wake import notify
from pgrouse.client.connection import database
from pgrouse.client.connection.listening import ListenConnection
from pgrouse.logging import events
from pgrouse.logging.event_logger import log
from pgrouse.process.wake_event import WakeEvent

NEW_MESSAGE = "new_message"
CANCELLED = "cancelled"
# A policy was changed: messages that a pause or a limit held back may be ready now.
TOPIC_CHANGED = "topic_changed"
# A schedule was changed: it may be due sooner than the maintenance loop expects.
SCHEDULE_CHANGED = "schedule_changed"
NOTIFY_CHANNELS = (NEW_MESSAGE, CANCELLED, TOPIC_CHANGED, SCHEDULE_CHANGED)
PING_EVERY_S = 5.0
PING_TIMEOUT_S = 5.0


class ListenerMode(Enum):
    """Whether notifications are known to arrive."""

    CONNECTING = "connecting"
    LISTENING = "listening"
    DEGRADED = "degraded"


class PingResult(Enum):
    """The result of a ping; its value says what is wrong and how to fix it."""

    RECEIVED = ("", "")
    NOT_RECEIVED = (
        "a notification that was sent did not arrive: is the listener's connection made through a pooler?",
        "set database.listen_dsn to a direct connection; until then messages are found by polling",
    )
    NOT_SENT = (
        "the server's queue of notifications is full: a session that listens has been in one transaction for long",
        "end that session: `pgrouse doctor` names it; until then messages are found by polling",
    )


class Listener:
    """Receives the notifications of one daemon.

    Args:
        on_new_message: called for each notification that may mean new messages, with its payload.
        on_cancelled: called when a notification says that a message was cancelled. Any session can send it, so it is
            only a reason to check.
        on_topic_changed: called when a notification says that a topic's policy, or a schedule, was changed.
        on_mode: called with True when notifications are known to arrive, with False when not.
    """

    name = "listener"

    def __init__(
        self,
        db: database.Database,
        on_new_message: Callable[[str], None],
        on_cancelled: Callable[[], None],
        on_topic_changed: Callable[[], None],
        on_mode: Callable[[bool], None],
    ) -> None:
        self.on_new_message, self.on_cancelled, self.on_mode = on_new_message, on_cancelled, on_mode
        self.on_topic_changed = on_topic_changed
        self.mode = ListenerMode.CONNECTING
        # A NOTIFY channel only for this listener, so that pings wake no other.
        self.ping_channel = f"ping_{token_hex(6)}"
        self.pong = asyncio.Event()
        self.connected_event = WakeEvent()
        self._connection = ListenConnection(
            db, self.name, *NOTIFY_CHANNELS, self.ping_channel, on_connect=self._on_connect
        )
        self._must_reconnect = False

    async def step(self) -> float:
        """Connect if needed, or handle the notifications of at most a second."""
        if self._must_reconnect:
            await self.reset()
        for received in await self._connection.receive(1.0):
            self._on_notification(received.channel, received.payload)
        # Let the tasks that were woken run first: what follows here can wait.
        await asyncio.sleep(0)
        if not self.is_connected:
            self._on_disconnect()
        return 0

    async def reset(self) -> None:
        """Close the connection; from now on no notification arrives."""
        self._must_reconnect = False
        await self._connection.close()
        self._on_disconnect()

    def record_ping(self, ping: PingResult) -> None:
        """Handle the result of the last ping; reconnect if it was sent and did not arrive."""
        if self.is_connected:
            self._must_reconnect = ping is PingResult.NOT_RECEIVED
            self._set_mode(ListenerMode.LISTENING if ping is PingResult.RECEIVED else ListenerMode.DEGRADED, ping)

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection on which a ping could arrive."""
        return self._connection.is_connected

    def _on_connect(self) -> None:
        log.debug(events.LISTENER_CONNECTED)
        # Only a ping proves that notifications arrive; a claim finds the messages that were published in the meantime.
        self.on_new_message("")
        self.connected_event.set()

    def _on_disconnect(self) -> None:
        if self.mode is ListenerMode.LISTENING:
            self._set_mode(ListenerMode.CONNECTING)

    def _on_notification(self, channel: str, payload: str) -> None:
        if channel == self.ping_channel:
            self.pong.set()
        elif channel == CANCELLED:
            self.on_cancelled()
        elif channel == SCHEDULE_CHANGED:
            self.on_topic_changed()
        elif channel == TOPIC_CHANGED:
            self.on_topic_changed()
            self.on_new_message("")
        else:
            self.on_new_message(payload)

    def _set_mode(self, mode: ListenerMode, ping: PingResult = PingResult.NOT_RECEIVED) -> None:
        if mode is self.mode:
            return
        reason, fix = ping.value
        before, self.mode = self.mode, mode
        if mode is ListenerMode.DEGRADED:
            log.warning(events.LISTENER_DEGRADED, reason=reason, fix=fix)
        elif mode is ListenerMode.LISTENING and before is ListenerMode.DEGRADED:
            log.info(events.LISTENER_RESTORED)
        self.on_mode(mode is ListenerMode.LISTENING)


class Prober:
    """Sends the listener a ping from another connection, every few seconds."""

    name = "prober"

    def __init__(self, db: database.Database, listener: Listener) -> None:
        self.db, self.listener = db, listener
        self._conn: psycopg.AsyncConnection | None = None

    async def step(self) -> float:
        """Send one ping, at once after the listener has connected."""
        await self.listener.connected_event.wait(PING_EVERY_S)
        if not self.listener.is_connected:
            return 0
        if self._conn is None:
            self._conn = await self.db.connect("prober")
        self.listener.pong.clear()
        ping = await self._ping()
        self.listener.record_ping(ping)
        if ping is PingResult.NOT_RECEIVED:
            # It is unknown which of the two connections is dead.
            await self.reset()
        return 0

    async def reset(self) -> None:
        """Close the connection."""
        conn, self._conn = self._conn, None
        await database.close(conn)

    async def _ping(self) -> PingResult:
        assert self._conn is not None  # noqa: S101 - step() opened it
        try:
            async with asyncio.timeout(PING_TIMEOUT_S):
                # Use the function that sends the real notifications: if it cannot send this one, it could not have sent
                # those.
                channel = self.db.schema.channel(self.listener.ping_channel)
                if not await run_async(self._conn, notify(channel, [""])):
                    return PingResult.NOT_SENT
                await self.listener.pong.wait()
        except TimeoutError:
            return PingResult.NOT_RECEIVED
        except psycopg.errors.ProgramLimitExceeded:  # the queue has just become full
            return PingResult.NOT_SENT
        return PingResult.RECEIVED
