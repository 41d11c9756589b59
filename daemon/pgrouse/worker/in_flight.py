"""What a worker has in hand: every message from its claim until its settle has arrived. The heartbeat extends the locks of these."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import timedelta

from pgrouse.client.message import Message
from pgrouse.worker.progress import Progress

# A lock that is shorter needs its heartbeat sooner than in a second.
SHORT_S = 3.0
# Handlers in threads may run on for long after their message was cancelled; so many cancellations are remembered.
CANCELLED = 10_000


@dataclass(slots=True)
class Held:
    """A message in hand.

    Attributes:
        message: the message.
        beat: when its lock was taken or last extended, by the monotonic clock.
        started: when its handler was started; None while it waits.
    """

    message: Message
    beat: float
    started: float | None = None


@dataclass(slots=True)
class Extension:
    """A handler's wish to hold its message until so long from now; done when its lock is extended, broken by LockLost."""

    message: Message
    lock_for: timedelta
    done: Future[None] = field(default_factory=Future)


class Hand:
    """The messages in hand, by id. Handlers in threads may let theirs go; the heartbeat's thread reads copies; the rest is the event loop's.

    Attributes:
        hurry: set when there is something for the heartbeat to do at once: a message with a short lock came, a handler has a wish.
        progress: what handlers noted of theirs.
        extensions: what handlers wish and the heartbeat has not done yet.
    """

    def __init__(self) -> None:
        self._held: dict[int, Held] = {}
        self._given_up: set[int] = set()
        self._cancelled: dict[tuple[int, int], None] = {}
        self.hurry = threading.Event()
        self.progress = Progress(self.hurry.set)
        self.extensions: deque[Extension] = deque()

    def __len__(self) -> int:
        return len(self._held)

    def started(self, message: Message, now: float) -> None:
        """Its handler starts. Only messages with a run_timeout need this: their locks are not extended for ever."""
        held = self._held.get(message.id)
        if held is not None:
            held.started = now

    def holds(self, message: Message) -> bool:
        """Whether the message is in hand under this very claim."""
        held = self._held.get(message.id)
        return held is not None and held.message.claim_id == message.claim_id

    def find(self, message_id: int) -> Message | None:
        """Return the message with this id if it is in hand."""
        held = self._held.get(message_id)
        return held.message if held else None

    def add(self, claimed: Iterable[Message], now: float) -> None:
        """Take claimed messages in."""
        for message in claimed:
            self._held[message.id] = Held(message, now)
            self._given_up.discard(message.id)
            if message.lock_for_s < SHORT_S:
                self.hurry.set()

    def let_go(self, messages: Iterable[Message]) -> None:
        """These are settled, or not this worker's any more."""
        noted = bool(self.progress)
        for message in messages:
            # The same message may have been lost and claimed again meanwhile.
            if self.holds(message):
                self._held.pop(message.id, None)
                if noted:
                    self.progress.forget(message)

    def give_up(self, message: Message) -> None:
        """Nothing more can be done for it. It stays locked until its lock expires: a message that is nobody's would be worked again at once."""
        self.let_go([message])
        self._given_up.add(message.id)

    def extend(self, message: Message, lock_for: timedelta) -> Future[None]:
        """Let the heartbeat extend one lock now. Any thread may ask."""
        wish = Extension(message, lock_for)
        self.extensions.append(wish)
        self.hurry.set()
        return wish.done

    def cancel(self, messages: Iterable[Message]) -> None:
        """Somebody has cancelled these."""
        for message in messages:
            self._cancelled[message.id, message.claim_id] = None
        while len(self._cancelled) > CANCELLED:
            del self._cancelled[next(iter(self._cancelled))]

    def is_cancelled(self, message: Message) -> bool:
        """Whether somebody has cancelled the message."""
        return (message.id, message.claim_id) in self._cancelled

    def snapshot(self) -> list[Held]:
        """Return what is in hand now; safe to call from another thread."""
        return list(self._held.values())

    def ids(self) -> list[int]:
        """Return the ids whose locks are known: those in hand, and those given up."""
        return [*self._held, *self._given_up]
