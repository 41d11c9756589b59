"""The queue as it should be: how publish, claim, settle, time and operators change messages, in plain Python.

Where the queue may choose (which topic or channel goes first) the model accepts any permitted choice, and raises an
AssertionError for others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

# Later than the server's clock: low-water marks, which depend on it, then never pass a message.
BEGIN = datetime(2100, 1, 1, tzinfo=UTC)
LOCK_FOR = timedelta(seconds=30)
LONGEST_HISTORY = 20
DEAD = {"rejected", "failed", "lock_expired", "expired"}
MAX_REDRIVES = 10
# When a blocked message is available, until it is released.
NEVER = datetime(9000, 1, 1, tzinfo=UTC)

Claim = tuple[int, int]  # id and claim_id


@dataclass(frozen=True)
class Policy:
    """The policy of one topic."""

    max_attempts: int = 1
    delay: Callable[[int], float] = lambda _: 10
    expired_delay: float | None = None
    key_on_retry: str = "supersede"
    ttl: float | None = None
    max_depth: int | None = None
    drops: bool = False
    max_concurrency: int | None = None
    channel_concurrency: int | None = None
    ordered: bool = False
    subscribers: tuple[str, ...] = ()


POLICIES = {
    "once": Policy(),
    "thrice": Policy(3, lambda attempt: min(10, 4 * 2 ** (attempt - 1)), expired_delay=3, key_on_retry="keep"),
    "forever": Policy(0, lambda _: 0),
    "brief": Policy(2, ttl=20),
    "small": Policy(2, max_depth=3),
    "spill": Policy(max_depth=2, drops=True),
    "narrow": Policy(2, lambda _: 4, max_concurrency=3, channel_concurrency=2),
    "ordered": Policy(3, lambda _: 4, ordered=True),
    "news": Policy(subscribers=("forever", "once")),
}
SET_POLICIES = """
    UPDATE messages.topic SET backoff = '{"kind": "constant", "base": "10 s"}' WHERE topic = '*';
    INSERT INTO messages.topic (topic, max_attempts, backoff, lock_expired_delay, key_on_retry) VALUES
      ('thrice', 3, '{"kind": "exponential", "base": "4 s", "factor": 2, "cap": "10 s"}', '3 s', 'keep'),
      ('forever', 0, '{"kind": "none"}', NULL, NULL);
    INSERT INTO messages.topic (topic, max_attempts, ttl) VALUES ('brief', 2, '20 s');
    INSERT INTO messages.topic (topic, max_attempts, max_depth, on_full)
    VALUES ('small', 2, 3, 'error'), ('spill', NULL, 2, 'drop');
    INSERT INTO messages.topic (topic, max_attempts, backoff, max_concurrency, channel_concurrency, ordered) VALUES
      ('narrow', 2, '{"kind": "constant", "base": "4 s"}', 3, 2, NULL),
      ('ordered', 3, '{"kind": "constant", "base": "4 s"}', NULL, NULL, true);
    INSERT INTO messages.subscription (topic, subscriber) VALUES ('news', 'forever'), ('news', 'once')
"""


class Full(Exception):
    """The topic is full and refuses."""


class KeyTaken(Exception):
    """A message of this key is waiting already."""


@dataclass(frozen=True)
class Lock:
    claim_id: int
    worker: str
    expires_at: datetime


@dataclass(frozen=True)
class Live:
    """A message that has not ended."""

    id: int
    topic: str
    channel: str | None
    key: str | None
    priority: int
    max_attempts: int | None
    payload: Any
    available_at: datetime
    expires_at: datetime | None = None
    attempts: int = 0
    ended: int = 0
    lock: Lock | None = None
    redriven_from: int | None = None
    redrives: int = 0

    @property
    def line(self) -> tuple[str, str | None]:
        """The topic and channel in which it waits."""
        return self.topic, self.channel

    @property
    def is_ordered(self) -> bool:
        """Whether its channel is ordered."""
        return POLICIES[self.topic].ordered and self.channel is not None

    @property
    def turn(self) -> tuple[int, datetime, int]:
        """Its position there."""
        return self.priority, self.available_at, self.id


@dataclass(frozen=True)
class Blocked:
    """The state of a blocked message.

    It has the predecessors, its after_failed, and when its publisher wants it to be available.
    """

    predecessors: frozenset[int]
    after_failed: str
    available_at: datetime


@dataclass(frozen=True)
class Ended:
    """An archived message."""

    message: Live
    result: str


@dataclass
class Model:
    """All messages. Each method does what the function of its name does, and returns what that returns."""

    now: datetime = BEGIN
    live: dict[int, Live] = field(default_factory=dict)
    archive: dict[int, Ended] = field(default_factory=dict)
    redriven: dict[int, int] = field(default_factory=dict)
    blocked: dict[int, Blocked] = field(default_factory=dict)
    # A topic, or a topic and a channel, and until when it is paused; None = until it is resumed.
    paused: dict[tuple[str, str | None], datetime | None] = field(default_factory=dict)
    # Held ordered channels: for which message, and until when.
    held_channels: dict[tuple[str, str | None], tuple[int, datetime]] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=lambda: {name: each.max_attempts for name, each in POLICIES.items()})

    # Queries

    def running(self) -> list[Live]:
        return [m for m in self.live.values() if m.lock is not None]

    def depth(self, topic: str) -> int:
        return sum(m.topic == topic for m in self.live.values())

    def limit(self, message: Live) -> int | None:
        own = message.max_attempts
        return (self.limits[message.topic] if own is None else own) or None

    def waiting_with_key(self, topic: str, key: str | None) -> Live | None:
        """The message of this key that is ready and was never attempted: the database permits no second one."""
        found = (m for m in self.live.values() if (m.topic, m.key, m.attempts, m.lock) == (topic, key, 0, None))
        return None if key is None else next(found, None)

    def is_paused(self, topic: str, channel: str | None = None) -> bool:
        until = self.paused.get((topic, channel), self.now)
        return until is None or until > self.now

    # Publishing

    def publish(self, wanted: Live, on_conflict: str) -> str:
        """Add a message and return the outcome.

        Raises:
            KeyTaken: a message of this key waits, and on_conflict is error.
            Full: the topic is full and refuses.
        """
        policy = POLICIES[wanted.topic]
        ttl = None if policy.ttl is None else max(wanted.available_at, self.now) + timedelta(seconds=policy.ttl)
        wanted = replace(
            wanted, expires_at=ttl, payload=_array(wanted.payload) if on_conflict == "append" else wanted.payload
        )
        waiting = self.waiting_with_key(wanted.topic, wanted.key)
        if waiting is not None:
            return self._merge(waiting, wanted, on_conflict)
        if policy.max_depth is not None and self.depth(wanted.topic) >= policy.max_depth:
            if policy.drops:
                return "dropped"
            raise Full
        self.live[wanted.id] = wanted
        return "inserted"

    def block(self, message_id: int, after: Iterable[int], after_failed: str) -> None:
        """Block a message that was just inserted; predecessors that have succeeded are left out."""
        message = self.live[message_id]
        before = frozenset(i for i in map(self.latest_of, after) if not self.is_done(i, after_failed))
        if before:
            self.blocked[message_id] = Blocked(before, after_failed, message.available_at)
            expires_at = None if message.expires_at is None else NEVER
            self.live[message_id] = replace(message, available_at=NEVER, expires_at=expires_at)

    def latest_of(self, message_id: int) -> int:
        """The newest message that redrives made of this one."""
        while message_id in self.redriven:
            message_id = self.redriven[message_id]
        return message_id

    def is_done(self, message_id: int, after_failed: str) -> bool:
        """Whether a successor need not wait for a message."""
        return message_id not in self.live and (self.archive[message_id].result == "success" or after_failed == "run")

    def propagate_ends(self) -> None:
        """A transaction commits: successors learn of the ends, and of the ends that follow from them."""
        while any(map(self._resolve, list(self.blocked))):
            pass

    def _resolve(self, message_id: int) -> bool:
        """Whether anything changed for a blocked message."""
        old = self.blocked[message_id]
        before = frozenset(i for i in map(self.latest_of, old.predecessors) if not self.is_done(i, old.after_failed))
        if message_id not in self.live:
            del self.blocked[message_id]
        elif not before:
            del self.blocked[message_id]
            self._release(self.live[message_id], old)
        elif old.after_failed == "cancel" and any(i in self.archive for i in before):
            del self.blocked[message_id]
            self.end(self.live[message_id], "cancelled")
        else:
            self.blocked[message_id] = replace(old, predecessors=before)
            return False
        return True

    def _release(self, message: Live, blocked: Blocked) -> None:
        ttl, available_at = POLICIES[message.topic].ttl, max(blocked.available_at, self.now)
        expires_at = None if ttl is None else available_at + timedelta(seconds=ttl)
        self.live[message.id] = replace(message, available_at=available_at, expires_at=expires_at)

    def _merge(self, waiting: Live, wanted: Live, on_conflict: str) -> str:
        if on_conflict == "error":
            raise KeyTaken
        if on_conflict == "ignore":
            return "ignored"
        payload = _array(waiting.payload) + wanted.payload if on_conflict == "append" else wanted.payload
        expires_at = None
        if wanted.expires_at is not None and waiting.id not in self.blocked:
            ttl = wanted.expires_at - max(wanted.available_at, self.now)
            expires_at = max(waiting.available_at, self.now) + ttl
        self.live[waiting.id] = replace(waiting, payload=payload, expires_at=expires_at)
        return "appended" if on_conflict == "append" else "replaced"

    def fan_out(self, source: int, copies: dict[str, int]) -> None:
        """A message of a topic with subscribers ends, and each subscriber has a copy."""
        message = self.live[source]
        assert copies.keys() == set(POLICIES[message.topic].subscribers)
        self.end(message, "success")
        for topic, copy in copies.items():
            self.live[copy] = replace(message, id=copy, topic=topic)

    # Claiming

    def may_be_claimed(self, message: Live) -> bool:
        """Whether nothing holds it, and it is the next."""
        return self.is_free(message) and not self.has_others_first(message)

    def is_free(self, message: Live) -> bool:
        """Whether it is due, and nothing holds it except the messages ahead of it."""
        limit = self.limit(message)
        return not (
            not self.is_due(message)
            or self.is_paused(message.topic)
            or (message.channel is not None and self.is_paused(*message.line))
            or (message.expires_at is not None and message.expires_at <= self.now)
            or (limit is not None and message.attempts >= limit)
            or self.meets_a_limit(message)
        )

    def meets_a_limit(self, message: Live) -> bool:
        policy = POLICIES[message.topic]
        running = [m for m in self.running() if m.topic == message.topic]
        beside = [m for m in running if message.channel is not None and m.channel == message.channel]
        return (
            (policy.max_concurrency is not None and len(running) >= policy.max_concurrency)
            or (policy.channel_concurrency is not None and len(beside) >= policy.channel_concurrency)
            or (message.is_ordered and (bool(beside) or self.is_held(message.line)))
        )

    def has_others_first(self, message: Live) -> bool:
        """Whether other messages go first: in an ordered channel all earlier ones, elsewhere those that are due."""
        ahead = (m for m in self.live.values() if m.line == message.line and m.turn < message.turn)
        return any(message.is_ordered or self.is_due(m) for m in ahead)

    def is_due(self, message: Live) -> bool:
        return message.lock is None and message.available_at <= self.now

    def is_held(self, line: tuple[str, str | None]) -> bool:
        """Whether an ordered channel is held for its first message."""
        first, until = self.held_channels.get(line, (0, self.now))
        return until > self.now and first in self.live and self.live[first].lock is None

    def claim(
        self,
        got: list[Claim],
        ended: dict[int, str],
        worker: str,
        topics: list[str],
        limit: int,
        lock_duration: timedelta | None,
    ) -> None:
        """Apply what a claim returned, and what it archived instead of returning it."""
        topics_of_ended = {self.live[message_id].topic for message_id in ended}
        for message_id, result in ended.items():
            message, most = self.live[message_id], self.limit(self.live[message_id])
            expired = message.expires_at is not None and message.expires_at <= self.now
            assert message.topic in topics
            assert self.is_due(message)
            assert not self.is_paused(message.topic)
            assert result == ("expired" if expired else "failed")
            assert expired or (most is not None and message.attempts >= most)
            self.end(message, result)
        for message_id, claim_id in got:
            message = self.live[message_id]
            assert message.topic in topics
            # Archived messages take up room in a claim: then it may pass others of the topic, but never in an ordered
            # channel.
            passes = message.topic in topics_of_ended and not message.is_ordered
            assert self.is_free(message), message
            assert passes or not self.has_others_first(message), message
            lock = Lock(claim_id, worker, self.now + (lock_duration or LOCK_FOR))
            self.live[message_id] = replace(message, lock=lock, attempts=message.attempts + 1)
        if len(got) < limit and not ended:
            self._check_that_none_was_left_out(topics, {self.live[i].topic for i, _ in got})

    def _check_that_none_was_left_out(self, topics: list[str], served: set[str]) -> None:
        left = [m for m in self.live.values() if m.topic in topics and m.topic not in served and self.may_be_claimed(m)]
        assert left == []

    # Settling

    def held(self, claims: Iterable[Claim]) -> list[Live]:
        wanted = dict(claims)
        found = (self.live.get(message_id) for message_id in wanted)
        return [m for m in found if m and m.lock and m.lock.claim_id == wanted[m.id]]

    def lost(self, claims: list[Claim], result: str | None) -> list[int]:
        """Return the messages that `claims` may not settle and did not settle before."""
        held = {m.id for m in self.held(claims)}
        return [i for i, claim_id in claims if i not in held and not self.was_settled(i, claim_id, result)]

    def was_settled(self, message_id: int, claim_id: int, result: str | None) -> bool:
        ended = self.archive.get(message_id)
        return bool(ended and ended.result == result and ended.message.lock and ended.message.lock.claim_id == claim_id)

    def end(self, message: Live, result: str) -> None:
        del self.live[message.id]
        self.archive[message.id] = Ended(message, result)

    def end_all(self, claims: list[Claim], result: str) -> list[int]:
        lost = self.lost(claims, result)
        for message in self.held(claims):
            self.end(message, result)
        return lost

    def retry(self, claims: list[Claim], delay: timedelta | None, result: str = "failed") -> list[int]:
        lost, held = self.lost(claims, result), self.held(claims)
        superseded = {m.id for m in held if self.is_superseded(m)}
        for message in held:
            most = self.limit(message)
            if most is not None and message.attempts >= most:
                self.end(message, result)
            elif message.id in superseded:
                self.end(message, "cancelled")
            else:
                wait = self.delay(message, result) if delay is None else max(delay, timedelta(0))
                self.unlock_until(replace(message, ended=min(message.ended + 1, LONGEST_HISTORY)), self.now + wait)
        return lost

    def is_superseded(self, message: Live) -> bool:
        waiting = self.waiting_with_key(message.topic, message.key)
        newer = waiting is not None and waiting.id > message.id
        return newer and POLICIES[message.topic].key_on_retry == "supersede"

    def unlock_until(self, message: Live, due: datetime) -> None:
        """Unlock a message until it is due; in an ordered channel it keeps its position, and the channel is held."""
        if message.is_ordered:
            self.held_channels[message.line] = message.id, due
            due = message.available_at
        self.live[message.id] = replace(message, lock=None, available_at=due)

    def delay(self, message: Live, result: str) -> timedelta:
        policy = POLICIES[message.topic]
        expired = policy.expired_delay if result == "lock_expired" else None
        return timedelta(seconds=policy.delay(message.attempts) if expired is None else expired)

    def return_attempts(self, claims: list[Claim], delay: timedelta | None) -> list[int]:
        """Release (no delay) or defer."""
        lost, held = self.lost(claims, None), self.held(claims)
        twice = [m for m in held if m.attempts == 1 and m.key is not None and self._would_be_second(m, held)]
        kept = [m for m in twice if POLICIES[m.topic].key_on_retry == "keep" or self._is_before_a_blocked_one(m, held)]
        for message in held:
            if message in twice and message not in kept:
                self.end(message, "cancelled")
                continue
            back = replace(message, attempts=message.attempts - 1, key=None if message in twice else message.key)
            if delay is None:
                self.live[message.id] = replace(back, lock=None)
            else:
                self.unlock_until(replace(back, ended=min(back.ended + 1, LONGEST_HISTORY)), self.now + delay)
        return lost

    def _would_be_second(self, message: Live, held: list[Live]) -> bool:
        return self._has_newer(message, held) or self.waiting_with_key(message.topic, message.key) is not None

    def _is_before_a_blocked_one(self, message: Live, held: list[Live]) -> bool:
        """Whether the message that has its key is blocked.

        It may be this very message, which then stays without the key.
        """
        waiting = self.waiting_with_key(message.topic, message.key)
        return not self._has_newer(message, held) and waiting is not None and waiting.id in self.blocked

    @staticmethod
    def _has_newer(message: Live, held: list[Live]) -> bool:
        same = (message.topic, message.key, 1)
        return any((m.topic, m.key, m.attempts) == same and m.id > message.id for m in held)

    def heartbeat(self, claims: list[Claim], lock_duration: timedelta | None) -> list[int]:
        held = self.held(claims)
        for message in held:
            assert message.lock
            later = max(message.lock.expires_at, self.now + (lock_duration or LOCK_FOR))
            self.live[message.id] = replace(message, lock=replace(message.lock, expires_at=later))
        return [i for i, _ in claims if i not in {m.id for m in held}]

    # Time and operators

    def expire_locks(self) -> int:
        expired = [(m.id, m.lock.claim_id) for m in self.live.values() if m.lock and m.lock.expires_at < self.now]
        self.retry(expired, None, "lock_expired")
        return len(expired)

    def expire_messages(self) -> int:
        expired = [m for m in self.live.values() if m.expires_at and m.expires_at <= self.now and m.lock is None]
        for message in expired:
            self.end(message, "expired")
        return len(expired)

    def cancel(self, ids: list[int]) -> list[int]:
        cancelled = [self.live[i] for i in ids if i in self.live]
        for message in cancelled:
            self.end(message, "cancelled")
        return [m.id for m in cancelled]

    def skip(self, ids: list[int]) -> list[int]:
        skipped = [self.live[i] for i in ids if i in self.live and self.live[i].lock is None]
        for message in skipped:
            self.end(message, "failed")
        return [m.id for m in skipped]

    def redrive(self, ids: list[int]) -> dict[int, str]:
        """Return the outcome of each: those 'redriven' or 'keyless' are to be redriven."""
        outcomes = {i: stop for i in ids if (stop := self._stop_of_redrive(i))}
        going = [self.archive[i].message for i in ids if i not in outcomes]
        newest = {(m.topic, m.key): m.id for m in sorted(going, key=lambda m: m.id)}
        for m in going:
            free = m.key is None or (newest[m.topic, m.key] == m.id and self.waiting_with_key(m.topic, m.key) is None)
            keeps = POLICIES[m.topic].key_on_retry == "keep"
            outcomes[m.id] = "redriven" if free else "keyless" if keeps else "superseded"
        return outcomes

    def _stop_of_redrive(self, message_id: int) -> str | None:
        ended = self.archive.get(message_id)
        if ended is None or ended.result not in DEAD:
            return "not_dead"
        if message_id in self.redriven:
            return "redriven_before"
        return "too_often" if ended.message.redrives >= MAX_REDRIVES else None

    def add_redriven(self, archived_id: int, message_id: int, outcome: str) -> None:
        dead = self.archive[archived_id].message
        ttl = POLICIES[dead.topic].ttl
        self.redriven[archived_id] = message_id
        self.live[message_id] = replace(
            dead,
            id=message_id,
            key=None if outcome == "keyless" else dead.key,
            available_at=self.now,
            expires_at=None if ttl is None else self.now + timedelta(seconds=ttl),
            attempts=0,
            ended=0,
            lock=None,
            redriven_from=archived_id,
            redrives=dead.redrives + 1,
        )


def _array(payload: Any) -> list[Any]:
    return payload if isinstance(payload, list) else [payload]
