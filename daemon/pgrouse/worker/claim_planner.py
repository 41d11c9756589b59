"""When to claim, how much, and when it is safe to sleep: the daemon's half of the armed-sleeper protocol.

A publish rings only for a daemon that has said it sleeps. To fall asleep without missing anything, a daemon (1) commits its flag, (2) takes
a transaction id of its own, (3) claims until a claim that began when all older transactions had ended found nothing, and only then
(4) sleeps. The proof and the model are in docs/explanation/wake-up.md and tests/models/wake.pml.

Nothing here does I/O: the lanes ask `plan()` what to do and report with `heard()`.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, StrEnum

from pgrouse.client.message import Message
from pgrouse.client.worker_client import Exchange, Want

# While a daemon has found work without a pause for so long, it takes its flag down. Shorter, and bursts would rewrite the flag's row
# all the time; longer, and publishers would pay for rings that nobody needs.
BUSY_S = 0.25
# While a limit holds messages back: other workers' settles make room, too, and ring for nobody.
HELD_BACK_S = 1.0
# How soon to look again while older transactions are still open, or hold what is due; growing from the first to the last.
HORIZON_S = (0.005, 0.01, 0.02, 0.05)

# After a claim that failed, perhaps because of one of its messages: so many at first, each of which is then read by itself; twice as many
# each time that goes well, and as before once they are more than the last.
NARROW_FIRST, NARROW_LAST = 8, 32


class State(Enum):
    """Where the daemon stands between claims."""

    LOOKING = "looking"  # there may be ready messages: claim
    ARMING = "arming"  # the flag is up, older transactions are still open: look again soon
    ASLEEP = "asleep"  # a publish will ring


class Source(StrEnum):
    """Why a claim is made."""

    NOTIFY = "notify"  # a notification woke the daemon
    TIMER = "timer"  # a delayed message is due, or a limit may let go
    POLL = "poll"  # nothing was heard for a poll interval
    BUSY = "busy"  # the claim before found something, a place became free, or the daemon is about to fall asleep


@dataclass(slots=True)
class Plan:
    """What the next exchange shall do besides settling.

    Attributes:
        source: why it claims.
        slept_s: how long the daemon had slept before, and would have been woken by a publish; 0 if it had not.
    """

    want: Want | None = None
    arm_s: float | None = None
    disarm: bool = False
    source: Source = Source.BUSY
    slept_s: float = 0.0


@dataclass(slots=True)
class Room:
    """How much a worker can take now: topics with room, the bound of each, and of all.

    Attributes:
        batches: the same for the topics of batch handlers, whose messages have places of their own.
        places: so many could begin at once, the others would wait for a place; None = none waits.
    """

    topics: list[str]
    slots: list[int | None] | None
    limit: int
    batches: Room | None = None
    places: int | None = field(default=None, compare=False)

    @property
    def is_empty(self) -> bool:
        """Whether nothing can be taken."""
        return self.limit <= 0 or not self.topics


class Claimer:
    """Decides for all lanes of one daemon.

    Args:
        room: tells what can be taken now.
        poll_s: how long to sleep at most, in seconds; asked anew each time, so that it may jitter.
        clock: a monotonic clock, in seconds.
        lanes: how many claim side by side while there is plenty.
    """

    def __init__(
        self, room: Callable[[], Room], poll_s: Callable[[], float], clock: Callable[[], float], lanes: int = 1
    ) -> None:
        self.room = room
        self.poll_s = poll_s
        self.clock = clock
        self.lanes = lanes
        self._on_the_way: list[Want] = []
        self.state = State.LOOKING
        self.listening = False
        self.stopped = False
        self.held_back = False
        self.wakes = 0
        self._deep = False
        self.heard_at = clock()
        self._look_at = 0.0
        self._look_for = Source.POLL  # what that look is for
        self._asleep_since = 0.0
        self._woken: tuple[Source, float] = (Source.BUSY, 0.0)  # what ended the last sleep, and how long it was
        self._flag_up = False  # as far as the database may know
        self._flag_counts_until = 0.0  # when the database was told that we look by ourselves
        self._must_arm = False
        self._own_xid: int | None = None
        self._tries = 0
        self._misses = 0
        self._busy_since: float | None = None
        self._after_topic: str | None = None
        self._after_batch_topic: str | None = None
        self._after_channels: dict[str, str] = {}
        self._most: int | None = None  # of a claim, while they are narrow
        self._left_out = False  # the last claim was for batches alone, since the places of everything else were taken

    def wake(self) -> None:
        """Something may be ready: a notification came, a handler's topic has room again."""
        self.wakes += 1
        self._look()

    def rung(self) -> None:
        """A notification came."""
        self._awake(Source.NOTIFY)
        self.wake()

    def listen(self, listening: bool) -> None:
        """The listener is new, or rings are not heard any more: sleeping needs the whole protocol again, or no flag at all."""
        self.listening = listening
        self._flag_counts_until = 0.0
        self.wake()

    def stop(self) -> None:
        """Claim no more."""
        self.stopped = True

    def wait_s(self) -> float | None:
        """How long a lane that has nothing to do may wait for a signal; None = until there is one."""
        if self.stopped or self.state is State.LOOKING:
            return None
        return max(0.0, self._look_at - self.clock())

    def plan(self, *, first: bool, settling: bool = False) -> Plan:
        """Say what the next exchange of a lane shall do besides settling.

        Args:
            first: whether the lane is the one that looks and falls asleep for all; the others claim only while there is plenty.
            settling: whether it settles something, which may make room below a limit.
        """
        makes_room = settling and self.held_back
        if self.stopped or not (first or self._deep or makes_room):
            return Plan()
        if makes_room:
            self._look()
        if self.state is not State.LOOKING and self.clock() >= self._look_at:
            self._awake(self._look_for)
            self._look()
        whole = self.room()
        room = self._share(whole)
        if self._left_out and room.limit > 0:
            self._look()
        disarm = first and self._flag_is_a_burden()
        # A look that is put off is not owed to what woke us any more.
        source, slept_s = self._woken
        self._woken = Source.BUSY, 0.0
        if self.state is not State.LOOKING or (room.is_empty and room.batches is None):
            return Plan(disarm=disarm)
        arm_s = self.poll_s() if first and self._must_arm and self.listening else None
        want = self._want(room)
        if whole.places is not None:
            want.start = max(0, whole.places - sum(each.limit for each in self._on_the_way))
        if want.batches is not None and whole.batches is not None:
            want.batches.start = whole.batches.places
        if self._most is not None:
            for each in want.parts:
                each.limit, each.contents = min(each.limit, self._most), False
        self._on_the_way.append(want)
        return Plan(want, arm_s, disarm and arm_s is None, source, slept_s)

    def heard(self, plan: Plan, got: Exchange, *, began: float, wakes: int) -> None:
        """Take in what an exchange found.

        Args:
            plan: what it was told to do.
            got: what came back.
            began: when it was sent; what the flag promises counts from then.
            wakes: the counter's value then.
        """
        if plan.disarm:
            self._flag_up = False
            self._flag_counts_until = 0.0
        if plan.arm_s is not None:
            self._flag_up = True
            self._flag_counts_until = began + plan.arm_s
            self._own_xid, self._tries, self._must_arm = got.own_xid, 0, False
        if plan.want is None:
            return
        self.ended(plan)
        self.heard_at = self.clock()
        self.held_back = got.held_back
        if got.claimed:
            self._found(plan.want, got.claimed)
        else:
            self._found_nothing(got, began, woken=self.wakes != wakes)

    def ended(self, plan: Plan) -> None:
        """The claim of this plan brings nothing any more: it was heard, or it failed."""
        self._on_the_way = [want for want in self._on_the_way if want is not plan.want]

    def narrow(self) -> None:
        """A claim failed, and one of its messages may be the cause: claim fewer, down to one, and read each by itself."""
        self._most = NARROW_FIRST if self._most is None else max(1, self._most // 2)
        self._look()

    def widen(self) -> None:
        """A narrow claim went well."""
        if self._most is not None:
            self._most = self._most * 2 if self._most < NARROW_LAST else None

    @property
    def armed(self) -> bool:
        """Whether a publish would ring until the time at which we look by ourselves."""
        return self.listening and self._flag_counts_until > self.clock()

    def _look(self) -> None:
        self.state = State.LOOKING

    def _awake(self, source: Source) -> None:
        if self.state is State.ASLEEP:
            self._woken = source, self.clock() - self._asleep_since if self.listening else 0.0

    def _found(self, want: Want, claimed: list[Message]) -> None:
        self._look()
        self._must_arm = False
        self._deep = self._fills(want, claimed)
        if self._busy_since is None:
            self._busy_since = self.clock()
        for message in claimed:
            if message.channel is not None:
                self._after_channels[message.topic] = message.channel

    def _fills(self, want: Want, claimed: list[Message]) -> bool:
        """Whether there may be more, and where the next claim goes on."""
        apart = want.batches
        if apart is None:
            self._after_topic = claimed[-1].topic
            return len(claimed) >= want.limit
        batched = [message.topic for message in claimed if message.topic in apart.topics]
        single = [message.topic for message in claimed if message.topic not in apart.topics]
        self._after_batch_topic = batched[-1] if batched else self._after_batch_topic
        self._after_topic = single[-1] if single else self._after_topic
        return len(batched) >= apart.limit or (bool(want.topics) and len(single) >= want.limit)

    def _found_nothing(self, got: Exchange, began: float, *, woken: bool) -> None:
        self._deep = False
        if woken:
            return
        if not self.listening:
            self._sleep(got.next_due_s, self.clock() + self.poll_s(), began)
        elif not self.armed:
            self._must_arm = True
        elif self._own_xid is not None and (got.oldest_xid or 0) < self._own_xid:
            self._wait_for_the_horizon()
        else:
            self._own_xid = None
            self._sleep(got.next_due_s, self._flag_counts_until, began)

    def _wait_for_the_horizon(self) -> None:
        self.state = State.ARMING
        self._look_at = self.clock() + HORIZON_S[min(self._tries, len(HORIZON_S) - 1)]
        self._tries += 1

    def _sleep(self, next_due_s: float | None, poll_at: float, began: float) -> None:
        self._busy_since = None
        at_most = min(poll_at, self.clock() + HELD_BACK_S) if self.held_back else poll_at
        look_at = at_most if next_due_s is None else min(at_most, self.clock() + self._pause_s(next_due_s))
        if self.state is State.ASLEEP:
            # Two lanes may have looked at once: what the earlier snapshot did not show yet is still due.
            look_at = min(look_at, self._look_at)
        else:
            self._asleep_since = began
        self._look_at = look_at
        self._look_for = Source.POLL if look_at >= poll_at else Source.TIMER
        self.state = State.ASLEEP

    def _pause_s(self, next_due_s: float) -> float:
        """How long to wait for what is due then. If that is now, and the claim did not get it, somebody else has its row locked."""
        self._misses = 0 if next_due_s > 0 else self._misses + 1
        return next_due_s if next_due_s > 0 else HORIZON_S[min(self._misses, len(HORIZON_S)) - 1]

    def _flag_is_a_burden(self) -> bool:
        """Whether publishers ring for nothing: we have been busy for a while, or do not hear them."""
        if not self._flag_up:
            return False
        busy = self._busy_since is not None and self.clock() - self._busy_since >= BUSY_S
        return busy or not self.listening

    def _share(self, room: Room) -> Room:
        """What of the room this claim may fill: not what those on their way may bring, and while there is plenty only a lane's share."""
        share = -(-room.limit // self.lanes) if self._deep else room.limit
        shared = _left_of(room, self._on_the_way, share)
        if room.batches is not None:
            # Not shared among lanes: a batch that is claimed in two halves is two batches.
            on_the_way = [want.batches for want in self._on_the_way if want.batches is not None]
            batches = _left_of(room.batches, on_the_way, room.batches.limit)
            shared.batches = None if batches.is_empty else batches
        return shared

    def _want(self, room: Room) -> Want:
        channels = json.dumps(self._after_channels) if self._after_channels else None
        want = _want_of(room, self._after_topic, channels)
        self._left_out = bool(room.topics) and room.limit <= 0
        if room.batches is not None:
            want.batches = _want_of(room.batches, self._after_batch_topic, channels)
        return want


def _left_of(room: Room, on_the_way: list[Want], share: int) -> Room:
    """Return what of a room the claims that are on their way leave, at most the share."""
    limit = min(share, room.limit - sum(want.limit for want in on_the_way))
    if room.slots is None or not on_the_way:
        return Room(room.topics, room.slots, limit)
    asked: Counter[str] = Counter()
    for want in on_the_way:
        asked.update(dict(zip(want.topics, (slots or 0 for slots in want.slots or []), strict=False)))
    free = {
        topic: None if slots is None else slots - asked[topic]
        for topic, slots in zip(room.topics, room.slots, strict=True)
    }
    topics = [topic for topic, slots in free.items() if slots is None or slots > 0]
    return Room(topics, [free[topic] for topic in topics], limit)


def _want_of(room: Room, after_topic: str | None, channels: str | None) -> Want:
    if room.is_empty:
        return Want([], 0)
    several = len(room.topics) > 1
    return Want(room.topics, room.limit, room.slots, after_topic if several else None, channels)


def jittered(seconds: float) -> float:
    """Return the time give or take a fifth, so that daemons that started together do not stay together."""
    return seconds * random.uniform(0.8, 1.2)  # noqa: S311 - nothing to guess
