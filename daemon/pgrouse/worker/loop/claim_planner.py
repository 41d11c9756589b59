"""When to claim, how much, and when it is safe to sleep: the daemon's half of the armed-sleeper protocol.

A publish notifies only a daemon that is armed. To fall asleep without missing a message, a daemon (1) commits its flag,
(2) draws its own transaction id, (3) claims until a claim that started after all older transactions had ended finds
nothing, and only then (4) sleeps. The proof and the model are in docs/explanation/wake-up.md and tests/models/wake.pml.

Nothing here does I/O: the claim loops ask `next_turn()` what to do and report with `record_result()`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from pgrouse.client.message import Message
from pgrouse.client.processing.worker_client import ClaimRequest, TurnResult
from pgrouse.values.topic_pattern import PatternDict, is_pattern
from pgrouse.worker.execution.capacity import Capacity
from pgrouse.worker.loop.arrival_rate import ArrivalRate
from pgrouse.worker.reporting.wake_reason import WakeReason

# A daemon that has found work without a pause for this long lowers its flag. A shorter time would rewrite the flag's
# row in each burst. With a longer time, publishers would send notifications that no daemon needs.
DISARM_AFTER_S = 0.25
# While messages arrive steadily: how long after the start of one claim the next one starts. If the first claim loop is
# stuck, the loop that settles for it waits this much longer.
STEADY_CLAIM_S = 0.002
SETTLE_FOR_FIRST_S = 0.01
# While there is a backlog, claim loops share the messages, but each loop gets at least this many: the smaller a claim,
# the higher the cost per message.
SHARE_AT_LEAST = 64
# The poll interval while a limit holds messages back: settles of other workers also make room, and they notify no
# daemon.
LIMITED_POLL_S = 1.0
# The delays before the next claim while older transactions are open or have locked due messages; from the first to the
# last.
RECHECK_BACKOFF_S = (0.005, 0.01, 0.02, 0.05)

# An id has fewer digits: a number of this many may be too large for the server.
BIGINT_DIGITS = 19

# After a claim that failed, perhaps because of one of its messages: first claim this many, and read each message by
# itself. Each success doubles the number; after the last one, claims are as before.
NARROW_FIRST, NARROW_LAST = 8, 32

# How many topics' last channels are remembered: a pattern may have any number of topics.
MAX_LAST_CHANNELS = 1000


class PlannerState(Enum):
    """What the daemon does between claims."""

    CLAIMING = "claiming"  # there may be ready messages: claim
    STEADY = (
        "steady"  # messages arrive steadily: claim in a moment what has arrived by then, and settle with that claim
    )
    ARMING = "arming"  # the flag is up, older transactions are still open: claim again soon
    ASLEEP = "asleep"  # a publish will notify


@dataclass(slots=True)
class TurnPlan:
    """What the next turn should do in addition to settling.

    Attributes:
        reason: why it claims.
        slept_s: how long the daemon had slept before, armed for a notification; 0 if it had not.
    """

    request: ClaimRequest | None = None
    arm_s: float | None = None
    disarm: bool = False
    reason: WakeReason = WakeReason.BUSY
    slept_s: float = 0.0


class ClaimPlanner:
    """Plans the claims of all claim loops of one daemon.

    Args:
        capacity: returns what can be taken now.
        poll_s: returns the longest sleep, in seconds; called each time, so that it can add jitter.
        clock: a monotonic clock, in seconds.
        connections: how many claims run at the same time while there is a backlog.
        topics: all topics and patterns of the worker, whether or not they have capacity.
    """

    def __init__(
        self,
        capacity: Callable[[], Capacity],
        poll_s: Callable[[], float],
        clock: Callable[[], float],
        connections: int = 1,
        topics: Sequence[str] = (),
    ) -> None:
        self.capacity = capacity
        self.poll_s = poll_s
        self.clock = clock
        self.connections = connections
        self._names = PatternDict({each: each for each in topics}) if any(map(is_pattern, topics)) else None
        self._pending_claims: list[ClaimRequest] = []
        self.state = PlannerState.CLAIMING
        self.listening = False
        self.stopped = False
        self.held_back = False
        self.wake_count = 0
        self._arrival_rate = ArrivalRate()
        self._has_backlog = False
        self.last_claim_at = clock()
        self._next_claim_at = 0.0
        self._next_claim_reason = WakeReason.POLL  # the reason for that claim
        self._asleep_since = 0.0
        self._woken: tuple[WakeReason, float] = (WakeReason.BUSY, 0.0)  # why the last sleep ended, and how long it was
        self._may_be_armed = False  # in the database, if the last turn arrived
        self._armed_until = 0.0  # until the next poll that the database knows of
        self._must_arm = False
        self._own_xid: int | None = None
        self._horizon_checks = 0
        self._locked_misses = 0
        self._busy_since: float | None = None
        self._after_topic: str | None = None
        self._after_batch_topic: str | None = None
        self._after_channels: dict[str, str] = {}
        self._max_limit: int | None = None  # per claim, while claims are narrow
        self._message_id: int | None = None  # the message that ended the sleep, if a notification named it
        self._skipped_singles = False  # the last claim was for batches only, since no other slots were free

    def wake(self) -> None:
        """Something may be ready: a notification arrived, or a handler's topic has capacity again."""
        self.wake_count += 1
        if self.state is not PlannerState.STEADY:
            self._start_claiming()

    def on_notification(self, payload: str = "") -> None:
        """A notification arrived.

        If it ends a sleep, the next claim begins with the message that it names. Two may mean that there are more.
        """
        self._message_id = _message_id(payload) if self.state is PlannerState.ASLEEP else None
        self._end_sleep(WakeReason.NOTIFY)
        self.wake()

    def set_listening(self, listening: bool) -> None:
        """The listener has connected, or notifications no longer arrive.

        Sleeping needs the whole protocol again, or no flag at all.
        """
        self.listening = listening
        self._armed_until = 0.0
        self.wake()

    def stop(self) -> None:
        """Claim nothing more."""
        self.stopped = True

    def wait_s(self) -> float | None:
        """Return how long an idle claim loop may wait for a wake event; None = without a limit."""
        if self.stopped or self.state is PlannerState.CLAIMING:
            return None
        return max(0.0, self._next_claim_at - self.clock())

    def pause_s(self, *, first: bool) -> float:
        """Return how long a claim loop should keep settlements back.

        It should if a claim that can also settle them follows in a moment.

        Args:
            first: as in `next_turn`.
        """
        if self.stopped or self.state is not PlannerState.STEADY:
            return 0.0
        return max(0.0, self._next_claim_at + (0.0 if first else SETTLE_FOR_FIRST_S) - self.clock())

    def next_turn(self, *, first: bool, settling: bool = False) -> TurnPlan:
        """Return what the next turn of a claim loop should do in addition to settling.

        Args:
            first: whether this is the loop that polls and falls asleep for all; the others claim only while there is a
                backlog.
            settling: whether the turn settles messages, which may make room below a limit.
        """
        makes_room = settling and self.held_back
        if self.stopped or not (first or self._has_backlog or makes_room):
            return TurnPlan()
        if makes_room:
            self._start_claiming()
        if self.state is not PlannerState.CLAIMING and self.clock() >= self._next_claim_at:
            self._end_sleep(self._next_claim_reason)
            self._start_claiming()
        total = self.capacity()
        capacity = self._available(total)
        if self._skipped_singles and capacity.limit > 0:
            self._start_claiming()
        disarm = first and self._should_disarm()
        # A postponed claim no longer counts as the result of the wake-up.
        reason, slept_s = self._woken
        self._woken = WakeReason.BUSY, 0.0
        message_id, self._message_id = self._message_id, None
        if self.state is not PlannerState.CLAIMING or (capacity.is_empty and capacity.batches is None):
            return TurnPlan(disarm=disarm)
        arm_s = self.poll_s() if first and self._must_arm and self.listening else None
        request = self._request(capacity)
        request.message_id = message_id
        if total.prefetch is None:
            request.start = self._start(total)
        if request.batches is not None and total.batches is not None:
            request.batches.start = total.batches.start
        if self._max_limit is not None:
            for each in request.parts:
                each.limit, each.contents = min(each.limit, self._max_limit), False
        self._pending_claims.append(request)
        return TurnPlan(request, arm_s, disarm and arm_s is None, reason, slept_s)

    def record_result(self, plan: TurnPlan, got: TurnResult, *, sent_at: float, wake_count: int) -> None:
        """Record the result of a turn.

        Args:
            plan: what the turn was to do.
            got: its result.
            sent_at: when it was sent; the flag counts from then.
            wake_count: the counter's value at that time.
        """
        if plan.disarm:
            self._may_be_armed = False
            self._armed_until = 0.0
        if plan.arm_s is not None:
            self._may_be_armed = True
            self._armed_until = sent_at + plan.arm_s
            self._own_xid, self._horizon_checks, self._must_arm = got.own_xid, 0, False
        if plan.request is None:
            return
        self.claim_finished(plan)
        self.last_claim_at = self.clock()
        self.held_back = got.held_back
        is_steady = self._arrival_rate.add(len(got.claimed), self.last_claim_at)
        if got.claimed:
            self._on_messages(plan.request, got.claimed)
        if is_steady and not self.held_back and not self._may_be_full(plan.request, got.claimed):
            self._has_backlog = False
            self.state, self._next_claim_at = PlannerState.STEADY, sent_at + STEADY_CLAIM_S
        elif not got.claimed:
            self._on_empty_claim(got, sent_at, woken=self.wake_count != wake_count)

    def claim_finished(self, plan: TurnPlan) -> None:
        """The claim of this plan has returned or failed."""
        self._pending_claims = [request for request in self._pending_claims if request is not plan.request]

    def narrow(self) -> None:
        """A claim failed, perhaps because of one of its messages: claim fewer, down to one, and read each by itself."""
        self._max_limit = NARROW_FIRST if self._max_limit is None else max(1, self._max_limit // 2)
        self._start_claiming()

    def widen(self) -> None:
        """A narrow claim succeeded: claim more."""
        if self._max_limit is not None:
            self._max_limit = self._max_limit * 2 if self._max_limit < NARROW_LAST else None

    @property
    def armed(self) -> bool:
        """Whether a publish would notify this daemon until its next poll."""
        return self.listening and self._armed_until > self.clock()

    def _start_claiming(self) -> None:
        self.state = PlannerState.CLAIMING

    def _end_sleep(self, reason: WakeReason) -> None:
        if self.state is PlannerState.ASLEEP:
            self._woken = reason, self.clock() - self._asleep_since if self.listening else 0.0

    def _on_messages(self, request: ClaimRequest, claimed: list[Message]) -> None:
        self._start_claiming()
        self._must_arm = False
        self._has_backlog = self._is_full_claim(request, claimed)
        if self._busy_since is None:
            self._busy_since = self.clock()
        for message in claimed:
            if message.channel is not None:
                self._after_channels[message.topic] = message.channel
        while len(self._after_channels) > MAX_LAST_CHANNELS:
            del self._after_channels[next(iter(self._after_channels))]

    def _is_full_claim(self, request: ClaimRequest, claimed: list[Message]) -> bool:
        """Whether there may be more. Also remembers where the next claim continues."""
        batches = request.batches
        if batches is None:
            self._after_topic = claimed[-1].topic
            return len(claimed) >= request.limit
        batched = [message.topic for message in claimed if self._name_of(message.topic) in batches.topics]
        single = [message.topic for message in claimed if self._name_of(message.topic) not in batches.topics]
        self._after_batch_topic = batched[-1] if batched else self._after_batch_topic
        self._after_topic = single[-1] if single else self._after_topic
        return len(batched) >= batches.limit or (bool(request.topics) and len(single) >= request.limit)

    def _on_empty_claim(self, got: TurnResult, sent_at: float, *, woken: bool) -> None:
        self._has_backlog = False
        if woken:
            return
        if not self.listening:
            self._sleep(got.next_due_s, self.clock() + self.poll_s(), sent_at)
        elif not self.armed:
            self._must_arm = True
        elif self._own_xid is not None and (got.oldest_xid or 0) < self._own_xid:
            self._wait_for_older_transactions()
        else:
            self._own_xid = None
            self._sleep(got.next_due_s, self._armed_until, sent_at)

    def _wait_for_older_transactions(self) -> None:
        self.state = PlannerState.ARMING
        self._next_claim_at = self.clock() + RECHECK_BACKOFF_S[min(self._horizon_checks, len(RECHECK_BACKOFF_S) - 1)]
        self._horizon_checks += 1

    def _sleep(self, next_due_s: float | None, poll_at: float, sent_at: float) -> None:
        self._busy_since = None
        at_most = min(poll_at, self.clock() + LIMITED_POLL_S) if self.held_back else poll_at
        look_at = at_most if next_due_s is None else min(at_most, self.clock() + self._due_wait_s(next_due_s))
        if self.state is PlannerState.ASLEEP:
            # Two claims may have run at once: a message that the earlier snapshot did not show is still due.
            look_at = min(look_at, self._next_claim_at)
        else:
            self._asleep_since = sent_at
        self._next_claim_at = look_at
        self._next_claim_reason = WakeReason.POLL if look_at >= poll_at else WakeReason.TIMER
        self.state = PlannerState.ASLEEP

    def _due_wait_s(self, next_due_s: float) -> float:
        """How long to wait for the next due message.

        If one is due now and the claim did not return it, another session has its row locked.
        """
        self._locked_misses = 0 if next_due_s > 0 else self._locked_misses + 1
        return next_due_s if next_due_s > 0 else RECHECK_BACKOFF_S[min(self._locked_misses, len(RECHECK_BACKOFF_S)) - 1]

    def _should_disarm(self) -> bool:
        """Whether publishers notify in vain.

        They do if the daemon has been busy for a while, or does not receive notifications.
        """
        if not self._may_be_armed:
            return False
        busy = self._busy_since is not None and self.clock() - self._busy_since >= DISARM_AFTER_S
        return busy or not self.listening

    def _available(self, capacity: Capacity) -> Capacity:
        """The capacity that this claim may use.

        It excludes what pending claims may return, and is only one loop's share while there is a backlog.
        """
        share = self._share(capacity.limit) if self._has_backlog else capacity.limit
        shared = _remaining(capacity, self._pending_claims, share)
        if capacity.prefetch is not None:
            prefetch = dict(zip(capacity.topics, capacity.prefetch, strict=True))
            shared = _with_prefetch(shared, self._start(capacity) or 0, prefetch)
        if capacity.batches is not None:
            on_the_way = [request.batches for request in self._pending_claims if request.batches is not None]
            shared.batches = _remaining_batches(capacity.batches, on_the_way)
        return shared

    def _share(self, limit: int) -> int:
        return max(-(-limit // self.connections), SHARE_AT_LEAST)

    def _start(self, total: Capacity) -> int | None:
        """How many messages of the next claim can start at once; None = all."""
        if total.start is None:
            return None
        return max(0, total.start - sum(each.limit for each in self._pending_claims))

    def _request(self, capacity: Capacity) -> ClaimRequest:
        channels = json.dumps(self._after_channels) if self._after_channels else None
        request = _claim_request(capacity, self._after_topic, channels)
        self._skipped_singles = bool(capacity.topics) and capacity.limit <= 0
        if capacity.batches is not None:
            request.batches = _claim_request(capacity.batches, self._after_batch_topic, channels)
        if self._names is not None:
            for each in request.parts:
                # Without them the claim would take their messages for those of a pattern.
                each.others = [name for name in self._names if name not in each.topics]
        return request

    def _name_of(self, topic: str) -> str:
        """Return the name or pattern under which the worker handles a topic."""
        return topic if self._names is None else self._names.find(topic) or topic

    def _may_be_full(self, request: ClaimRequest, claimed: list[Message]) -> bool:
        """Whether a claim returned as many messages as it asked for, of all topics or of one."""
        if not claimed:
            return False
        found = Counter(self._name_of(message.topic) for message in claimed)
        return any(
            found.total() >= each.limit
            or any(slots is not None and found[name] >= slots for name, slots in each.bounds)
            for each in request.parts
        )


def _message_id(payload: str) -> int | None:
    """Return the id that a notification names; None: it names a topic.

    Any session can send a notification, so the id proves nothing.
    """
    return int(payload) if payload.isdecimal() and payload.isascii() and len(payload) < BIGINT_DIGITS else None


def _remaining(capacity: Capacity, on_the_way: list[ClaimRequest], share: int) -> Capacity:
    """Return the capacity that pending claims leave, at most the share."""
    limit = min(share, capacity.limit - sum(request.limit for request in on_the_way))
    if capacity.slots is None or not on_the_way:
        return Capacity(capacity.topics, capacity.slots, limit)
    asked: Counter[str] = Counter()
    for request in on_the_way:
        asked.update(dict(zip(request.topics, (slots or 0 for slots in request.slots or []), strict=False)))
    free = {
        topic: None if slots is None else slots - asked[topic]
        for topic, slots in zip(capacity.topics, capacity.slots, strict=True)
    }
    topics = [topic for topic, slots in free.items() if slots is None or slots > 0]
    return Capacity(topics, [free[topic] for topic in topics], limit)


def _remaining_batches(capacity: Capacity, on_the_way: list[ClaimRequest]) -> Capacity | None:
    """Return what one claim may take of the batches that pending claims leave; None = nothing.

    Claim loops do not share a batch: two half claims would make two batches.
    """
    left = _remaining(capacity, on_the_way, capacity.per_claim or capacity.limit)
    if left.is_empty:
        return None
    ahead = dict(zip(capacity.topics, capacity.prefetch or [], strict=False))
    slots = [min(count or 0, left.limit) for count in left.slots or []]
    # Messages that wait for no slot are taken first.
    prefetch = [
        max(0, most - max(0, (count or 0) - ahead.get(topic, 0)))
        for topic, count, most in zip(left.topics, left.slots or [], slots, strict=True)
    ]
    return Capacity(left.topics, list(slots), left.limit, prefetch=prefetch if any(prefetch) else None)


def _with_prefetch(capacity: Capacity, start: int, prefetch: dict[str, int]) -> Capacity:
    """Bound the messages of each topic by what can start at once and what may wait."""
    slots = capacity.slots or [None] * len(capacity.topics)
    bounds = {
        topic: bound if left is None else min(left, bound)
        for topic, left in zip(capacity.topics, slots, strict=True)
        if (bound := start + prefetch[topic]) > 0
    }
    if not bounds:
        return Capacity(capacity.topics, capacity.slots, 0)
    ahead = [prefetch[topic] for topic in bounds]
    return Capacity(list(bounds), list(bounds.values()), capacity.limit, prefetch=ahead)


def _claim_request(capacity: Capacity, after_topic: str | None, channels: str | None) -> ClaimRequest:
    if capacity.is_empty:
        return ClaimRequest([], 0)
    several = len(capacity.topics) > 1 or any(map(is_pattern, capacity.topics))
    after = after_topic if several else None
    return ClaimRequest(capacity.topics, capacity.limit, capacity.slots, after, channels, prefetch=capacity.prefetch)
