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
from pgrouse.client.processing.settlement import Settlement
from pgrouse.worker.execution.progress import Progress

# Shorter locks need a heartbeat sooner than after one second.
SHORT_LOCK_S = 3.0
# How many cancellations are remembered: handlers in threads may run long after their message was cancelled.
MAX_CANCELLED = 10_000


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
        # By id: the message, and when its claim was sent. A tuple, since one is made for each message.
        self._held: dict[int, tuple[Message, float]] = {}
        # By id and claim: when the handlers of messages with a timeout started.
        self._started: dict[tuple[int, int], float] = {}
        self._abandoned: set[int] = set()
        self._cancelled: dict[tuple[int, int], None] = {}
        self.wake_heartbeat = threading.Event()
        self.progress = Progress(self.wake_heartbeat.set)
        self.extensions: deque[LockExtension] = deque()
        self.completing: set[tuple[int, int]] = set()

    def __len__(self) -> int:
        return len(self._held)

    def mark_started(self, messages: Iterable[Message], now: float) -> None:
        """Note the start of the handlers of these messages.

        Only messages with a timeout need this: their locks are extended for a limited time.
        """
        for message in messages:
            self._started[message.id, message.claim_id] = now
            if not self.holds(message):
                # Nothing else would forget it.
                self._started.pop((message.id, message.claim_id), None)

    def started_at(self, message: Message) -> float | None:
        """Return when the handler of a message with a timeout started; None while it waits."""
        return self._started.get((message.id, message.claim_id))

    def holds(self, message: Message) -> bool:
        """Whether the message is in flight under this claim."""
        held = self._held.get(message.id)
        return held is not None and (held[0] is message or held[0].claim_id == message.claim_id)

    def held(self, settlements: Iterable[Settlement]) -> list[Settlement]:
        """Return those of these settlements whose messages are in flight."""
        return [each for each in settlements if self.holds(each.message)]

    def find(self, message_id: int) -> Message | None:
        """Return the message with this id if it is in flight."""
        held = self._held.get(message_id)
        return held[0] if held else None

    def add(self, claimed: Iterable[Message], now: float) -> None:
        """Add claimed messages."""
        added = {message.id: (message, now) for message in claimed}
        self._held.update(added)
        if self._abandoned:
            self._abandoned.difference_update(added)
        if min((message.lock_duration_s for message, _ in added.values()), default=SHORT_LOCK_S) < SHORT_LOCK_S:
            self.wake_heartbeat.set()

    def remove(self, messages: Iterable[Message]) -> None:
        """Remove messages that are settled, or whose lock was lost."""
        noted = bool(self.completing or self._started or self.progress.notes)
        held = self._held
        for message in messages:
            found = held.get(message.id)
            # The message may have been lost and claimed again in the meantime.
            if found is not None and (found[0] is message or found[0].claim_id == message.claim_id):
                held.pop(message.id, None)
                if noted:
                    self._forget_notes(message)

    def _forget_notes(self, message: Message) -> None:
        claim = message.id, message.claim_id
        self.completing.discard(claim)
        self._started.pop(claim, None)
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

    def snapshot(self) -> list[tuple[Message, float]]:
        """Return the messages in flight, and when the claim of each was sent. Thread-safe."""
        return list(self._held.values())

    def ids(self) -> list[int]:
        """Return the ids whose locks are accounted for: in flight or abandoned."""
        return [*self._held, *self._abandoned]
