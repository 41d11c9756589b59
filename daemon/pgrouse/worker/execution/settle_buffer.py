"""The settlements that are not written yet.

There is no timer: what ends during one flush is written by the next flush. If a flush fails, its settlements are put
back, and the heartbeat continues to extend the locks of their messages.
"""

from __future__ import annotations

from collections.abc import Sequence

from pgrouse.client.message import Message
from pgrouse.client.processing.settlement import LoggedLines, SettleKind, Settlement
from pgrouse.logging import events
from pgrouse.logging.event_logger import log
from pgrouse.process.wake_event import WakeEvents
from pgrouse.worker.reporting.metrics_recorder import MetricsRecorder


class SettleBuffer:
    """Collects settlements for the claim loops, and logs those whose lock was lost.

    Args:
        wake_events: set when there is something to settle, and when everything is settled.
        metrics: records what was settled.
    """

    def __init__(self, wake_events: WakeEvents, metrics: MetricsRecorder | None = None) -> None:
        self.wake_events = wake_events
        self.metrics = MetricsRecorder() if metrics is None else metrics
        self.waiting: list[Settlement] = []
        self.started: list[Message] = []
        self.logs: list[LoggedLines] = []
        self._recording: set[tuple[int, int]] = set()
        self.settling = self._saving_logs = 0
        self.counts: dict[SettleKind, int] = dict.fromkeys(SettleKind, 0)
        self.lost_count = 0

    def add(self, settlements: Sequence[Settlement]) -> None:
        """Add the settlements of attempts that ended at once.

        An empty list tells the claim loops that slots are free.
        """
        # The claim loop that the first settlement woke takes all of them.
        if not (self.waiting and settlements):
            self.wake_events.set()
        self.waiting += settlements

    def add_log(self, logged: LoggedLines) -> None:
        """Add the log lines of an attempt that ended: before its settlement, if it has one."""
        self.logs.append(logged)
        self.wake_events.set()

    def take_logs(self) -> list[LoggedLines]:
        """Take the log lines that wait; the caller reports with `logs_done` or `put_back_logs`."""
        taken, self.logs = self.logs, []
        self._saving_logs += len(taken)
        return taken

    def logs_done(self, taken: list[LoggedLines]) -> None:
        """These lines are stored, or no other try would store them."""
        self._saving_logs -= len(taken)
        if taken and self.is_idle:
            self.wake_events.set()

    def put_back_logs(self, taken: list[LoggedLines]) -> None:
        """The flush failed for a reason that may pass. Lines that are sent twice are stored once."""
        self._saving_logs -= len(taken)
        self.logs = taken + self.logs

    def start(self, message: Message) -> None:
        """Add a message that had waited for a free slot and starts now: its run is counted with the next flush."""
        self.started.append(message)
        self.wake_events.set()

    def take_started(self, settlements: list[Settlement]) -> list[Message]:
        """Take the messages whose run is to be counted by the flush of these settlements.

        The caller reports `runs_recorded` or `runs_uncertain`.

        A message that another flush is recording now is returned again if this flush settles it, because this flush may
        arrive first.
        """
        taken, self.started = self.started, []
        if self._recording:
            taken += [each.message for each in settlements if _claim(each.message) in self._recording]
        self._recording.update(map(_claim, taken))
        return taken

    def runs_recorded(self, started: list[Message]) -> None:
        """The runs of these messages are counted."""
        self._recording.difference_update(map(_claim, started))

    def runs_uncertain(self, started: list[Message]) -> None:
        """The runs of these messages may not be counted: send them again. A run that is sent twice is counted once."""
        self.runs_recorded(started)
        self.started += started

    def take(self) -> list[Settlement]:
        """Take everything that waits; the caller reports with `done` or `put_back`."""
        taken, self.waiting = self.waiting, []
        self.settling += len(taken)
        return taken

    def done(self, taken: list[Settlement], lost: list[int]) -> None:
        """The flush succeeded. The messages with these ids had lost their lock and were not changed."""
        self.settling -= len(taken)
        for kind, count in self.metrics.record_settled(taken, lost).items():
            self.counts[kind] += count
        if self.is_idle:
            self.wake_events.set()
        if lost:
            self._log_lost(taken, set(lost))

    def put_back(self, taken: list[Settlement]) -> None:
        """The flush failed, or its outcome is unknown: try it again.

        Settling a message a second time changes nothing and does not count as lost.
        """
        self.settling -= len(taken)
        self.waiting = taken + self.waiting
        self.wake_events.set()

    @property
    def settled_count(self) -> int:
        """How many attempts have been settled so far."""
        return sum(self.counts.values())

    @property
    def is_idle(self) -> bool:
        """Whether everything is settled, and all log lines are stored."""
        return not (self.waiting or self.settling or self.logs or self._saving_logs)

    def _log_lost(self, taken: list[Settlement], lost: set[int]) -> None:
        for settlement in taken:
            if settlement.message.id in lost:
                self.lost_count += 1
                log.warning(
                    events.MESSAGE_LOCK_LOST,
                    message_id=settlement.message.id,
                    topic=settlement.message.topic,
                    attempt=settlement.message.attempt,
                    settled_as=settlement.kind.value,
                )


def _claim(message: Message) -> tuple[int, int]:
    return message.id, message.claim_id
