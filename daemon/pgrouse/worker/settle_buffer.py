"""The attempts that ended and are not settled yet.

There is no timer: whatever ended while the last flush was on its way is the next flush. A flush that fails is put back; meanwhile the
heartbeat keeps extending the locks of what is in here.
"""

from __future__ import annotations

import structlog

from pgrouse import events
from pgrouse.client.message import Message
from pgrouse.worker.metrics_recorder import Meters
from pgrouse.handlers.outcome import Ended, Kind
from pgrouse.worker.wake_event import Signals

log = structlog.get_logger()


class Settler:
    """Gathers ended attempts for the lanes, and tells what became of them.

    Args:
        signals: set whenever there is something to settle, or something was.
        meters: told of what was settled.
    """

    def __init__(self, signals: Signals, meters: Meters | None = None) -> None:
        self.signals = signals
        self.meters = Meters() if meters is None else meters
        self.waiting: list[Ended] = []
        self.begun: list[Message] = []
        self._telling: set[tuple[int, int]] = set()
        self.in_flight = 0
        self.counts: dict[Kind, int] = dict.fromkeys(Kind, 0)
        self.lost = 0

    def add(self, ended: Ended) -> None:
        """Take in one attempt that ended."""
        self.waiting.append(ended)
        self.signals.set()

    def begin(self, message: Message) -> None:
        """Take in that a message which had waited for a place begins: its run is counted with the next flush."""
        self.begun.append(message)
        self.signals.set()

    def take_begun(self, ended: list[Ended]) -> list[Message]:
        """Hand out what has begun, for a flush that settles these; the caller reports with `told` or `untold`.

        Of those that another flush is telling of now it hands out again what this one settles: it may be the first to arrive.
        """
        taken, self.begun = self.begun, []
        if self._telling:
            taken += [each.message for each in ended if _claim(each.message) in self._telling]
        self._telling.update(map(_claim, taken))
        return taken

    def told(self, begun: list[Message]) -> None:
        """It is known that these have begun."""
        self._telling.difference_update(map(_claim, begun))

    def untold(self, begun: list[Message]) -> None:
        """It may not be known: it is told again. To be told twice counts once."""
        self.told(begun)
        self.begun += begun

    def take(self) -> list[Ended]:
        """Hand out everything that waits; the caller reports with `done` or `put_back`."""
        taken, self.waiting = self.waiting, []
        self.in_flight += len(taken)
        return taken

    def done(self, taken: list[Ended], lost: list[int]) -> None:
        """The flush arrived; these ids had lost their lock and were not changed."""
        self.in_flight -= len(taken)
        for kind, count in self.meters.settled(taken, lost).items():
            self.counts[kind] += count
        if self.idle:
            self.signals.set()
        if lost:
            self._tell_lost(taken, set(lost))

    def put_back(self, taken: list[Ended]) -> None:
        """The flush failed, or nobody knows: it is tried again. A repeated settle of what did arrive changes nothing and is not lost."""
        self.in_flight -= len(taken)
        self.waiting = taken + self.waiting
        self.signals.set()

    @property
    def settled(self) -> int:
        """How many attempts have been settled so far."""
        return sum(self.counts.values())

    @property
    def idle(self) -> bool:
        """Whether everything that ended is settled."""
        return not self.waiting and not self.in_flight

    def _tell_lost(self, taken: list[Ended], lost: set[int]) -> None:
        for ended in taken:
            if ended.message.id in lost:
                self.lost += 1
                log.warning(
                    events.MESSAGE_LOCK_LOST,
                    message_id=ended.message.id,
                    topic=ended.message.topic,
                    attempt=ended.message.attempt,
                    settled_as=ended.kind.value,
                )


def _claim(message: Message) -> tuple[int, int]:
    return message.id, message.claim_id
