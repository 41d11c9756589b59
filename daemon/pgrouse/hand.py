"""What a worker has in hand: every message from its claim until its settle has arrived. The heartbeat extends the locks of these."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass

from pgrouse.message import Message

# A lock that is shorter needs its heartbeat sooner than in a second.
SHORT_S = 3.0


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


class Hand:
    """The messages in hand, by id. Handlers in threads may let theirs go; the heartbeat's thread reads copies; the rest is the event loop's.

    Attributes:
        hurry: set when a message with a short lock came.
    """

    def __init__(self) -> None:
        self._held: dict[int, Held] = {}
        self._given_up: set[int] = set()
        self.hurry = threading.Event()

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
        for message in messages:
            # The same message may have been lost and claimed again meanwhile.
            if self.holds(message):
                self._held.pop(message.id, None)

    def give_up(self, message: Message) -> None:
        """Nothing more can be done for it. It stays locked until its lock expires: a message that is nobody's would be worked again at once."""
        self.let_go([message])
        self._given_up.add(message.id)

    def snapshot(self) -> list[Held]:
        """Return what is in hand now; safe to call from another thread."""
        return list(self._held.values())

    def ids(self) -> list[int]:
        """Return the ids whose locks are known: those in hand, and those given up."""
        return [*self._held, *self._given_up]
