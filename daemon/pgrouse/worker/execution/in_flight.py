"""The messages in flight: every message from its claim until its settle is confirmed.

The heartbeat extends their locks.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import timedelta

from pgrouse.client.message import Message
from pgrouse.client.settlement import Settlement
from pgrouse.worker.execution.progress import Progress

# Shorter locks need a heartbeat sooner than after one second.
SHORT_LOCK_S = 3.0
# How many cancellations are remembered: handlers in threads may run long after their message was cancelled.
MAX_CANCELLED = 10_000


@dataclass(slots=True)
class InFlightMessage:
    """A message in flight.

    Attributes:
        message: the message.
        extended_at: when its lock was taken or last extended, by the monotonic clock.
        started: when its handler started; None while it waits.
    """

    message: Message
    extended_at: float
    started: float | None = None


@dataclass(slots=True)
class LockExtension:
    """A handler's request to extend its message's lock.

    `done` is resolved when the lock is extended, and fails with LockLost.
    """

    message: Message
    lock_duration: timedelta
    done: Future[None] = field(default_factory=Future)


class InFlight:
    """The messages in flight, by id.

    Handlers in threads may remove theirs, the heartbeat's thread reads copies, and the event loop does the rest.

    Attributes:
        wake_heartbeat: set when the heartbeat has something to do at once: a new message with a short lock, or a
            handler's request.
        progress: the progress that handlers reported.
        extensions: requested extensions that the heartbeat has not done yet.
        completing: ids and claims of messages that their handlers may have completed in their own transactions.
    """

    def __init__(self) -> None:
        self._messages: dict[int, InFlightMessage] = {}
        self._abandoned: set[int] = set()
        self._cancelled: dict[tuple[int, int], None] = {}
        self.wake_heartbeat = threading.Event()
        self.progress = Progress(self.wake_heartbeat.set)
        self.extensions: deque[LockExtension] = deque()
        self.completing: set[tuple[int, int]] = set()

    def __len__(self) -> int:
        return len(self._messages)

    def mark_started(self, messages: Iterable[Message], now: float) -> None:
        """Note the start of the handlers of these messages.

        Only messages with a timeout need this: their locks are extended for a limited time.
        """
        for message in messages:
            held = self._messages.get(message.id)
            if held is not None:
                held.started = now

    def holds(self, message: Message) -> bool:
        """Whether the message is in flight under this claim."""
        held = self._messages.get(message.id)
        return held is not None and held.message.claim_id == message.claim_id

    def held(self, settlements: Iterable[Settlement]) -> list[Settlement]:
        """Return those of these settlements whose messages are in flight."""
        found = self._messages.get
        return [
            each
            for each in settlements
            if (held := found(each.message.id)) is not None and held.message.claim_id == each.message.claim_id
        ]

    def find(self, message_id: int) -> Message | None:
        """Return the message with this id if it is in flight."""
        held = self._messages.get(message_id)
        return held.message if held else None

    def add(self, claimed: Iterable[Message], now: float) -> None:
        """Add claimed messages."""
        for message in claimed:
            self._messages[message.id] = InFlightMessage(message, now)
            if self._abandoned:
                self._abandoned.discard(message.id)
            if message.lock_duration_s < SHORT_LOCK_S:
                self.wake_heartbeat.set()

    def remove(self, messages: Iterable[Message]) -> None:
        """Remove messages that are settled, or whose lock was lost."""
        noted = bool(self.progress.notes)
        for message in messages:
            held = self._messages.get(message.id)
            # The message may have been lost and claimed again in the meantime.
            if held is not None and held.message.claim_id == message.claim_id:
                self._messages.pop(message.id, None)
                if self.completing:
                    self.completing.discard((message.id, message.claim_id))
                if noted:
                    self.progress.forget(message)

    def abandon(self, message: Message) -> None:
        """Remove a message that cannot be settled.

        It stays locked until its lock expires: if released, it would be claimed again at once.
        """
        self.remove([message])
        self._abandoned.add(message.id)

    def extend(self, message: Message, lock_duration: timedelta) -> Future[None]:
        """Ask the heartbeat to extend one lock now. Thread-safe."""
        extension = LockExtension(message, lock_duration)
        self.extensions.append(extension)
        self.wake_heartbeat.set()
        return extension.done

    def mark_completing(self, messages: Iterable[Message]) -> None:
        """The handlers of these messages are about to complete them in their own transactions. Thread-safe."""
        # A thread that exceeded its timeout may call this too late; then nothing would ever remove its message.
        self.completing.update((message.id, message.claim_id) for message in messages if self.holds(message))

    def mark_not_completed(self, messages: Iterable[Message]) -> None:
        """The server refused the commit: these messages are in flight as before."""
        self.completing.difference_update((message.id, message.claim_id) for message in messages)

    def is_completing(self, message: Message) -> bool:
        """Whether only the database knows if the message is completed."""
        return (message.id, message.claim_id) in self.completing

    def mark_cancelled(self, messages: Iterable[Message]) -> None:
        """Remember that these messages were cancelled."""
        for message in messages:
            self._cancelled[message.id, message.claim_id] = None
        while len(self._cancelled) > MAX_CANCELLED:
            del self._cancelled[next(iter(self._cancelled))]

    def is_cancelled(self, message: Message) -> bool:
        """Whether the message was cancelled."""
        return (message.id, message.claim_id) in self._cancelled

    def snapshot(self) -> list[InFlightMessage]:
        """Return the messages in flight. Thread-safe."""
        return list(self._messages.values())

    def ids(self) -> list[int]:
        """Return the ids whose locks are accounted for: in flight or abandoned."""
        return [*self._messages, *self._abandoned]
