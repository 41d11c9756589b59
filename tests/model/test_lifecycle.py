"""The life of messages against a model in Python: whatever workers, operators and time do, and in which order.

After each step the database must hold exactly what the model holds: each published message in one of the two tables, once, with the
attempts, the lock, the time and the result that the model says. PGROUSE_MODEL_EXAMPLES=2000 makes a long run of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)
from psycopg import errors

from tests.sql.queue import Queue

EXAMPLES = int(os.environ.get("PGROUSE_MODEL_EXAMPLES", "120"))
STEPS = 40
# Beyond the server's clock: marks, which live by that, then never pass a message.
BEGIN = datetime(2100, 1, 1, tzinfo=UTC)
LOCK_FOR = timedelta(seconds=30)
DEAD = {"rejected", "failed", "lock_expired"}

Claim = tuple[int, int]  # id and claim_id


@dataclass(frozen=True)
class Policy:
    max_attempts: int
    delay: Callable[[int], float]
    expired_delay: float | None = None


POLICIES = {
    "once": Policy(1, lambda _: 10),
    "thrice": Policy(3, lambda attempt: min(10, 4 * 2 ** (attempt - 1)), expired_delay=3),
    "forever": Policy(0, lambda _: 0),
}
SET_POLICIES = """
    UPDATE messages.topic SET backoff = '{"kind": "constant", "base": "10 s"}' WHERE topic = '*';
    INSERT INTO messages.topic (topic, max_attempts, backoff, on_lock_expired_delay) VALUES
      ('thrice', 3, '{"kind": "exponential", "base": "4 s", "factor": 2, "cap": "10 s"}', '3 s'),
      ('forever', 0, '{"kind": "none"}', NULL)
"""
EMPTY = """
    DELETE FROM messages.message;
    DELETE FROM messages.message_archive;
    DELETE FROM messages.redrive_log;
    DELETE FROM messages.low_water;
    DELETE FROM messages.alert;
    UPDATE messages.topic SET max_attempts = 3 WHERE topic = 'thrice'
"""


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
    available_at: datetime
    attempts: int = 0
    ended: int = 0
    lock: Lock | None = None
    redriven_from: int | None = None


@dataclass(frozen=True)
class Ended:
    """An archived message."""

    message: Live
    result: str


@dataclass
class Model:
    """The queue as it should be. Each method does what the function of its name does, and returns what that returns."""

    now: datetime = BEGIN
    live: dict[int, Live] = field(default_factory=dict)
    archive: dict[int, Ended] = field(default_factory=dict)
    redriven: set[int] = field(default_factory=set)
    limits: dict[str, int] = field(
        default_factory=lambda: {topic: policy.max_attempts for topic, policy in POLICIES.items()}
    )

    def due(self) -> list[Live]:
        return [m for m in self.live.values() if m.lock is None and m.available_at <= self.now]

    def running(self) -> list[Live]:
        return [m for m in self.live.values() if m.lock is not None]

    def limit(self, message: Live) -> int | None:
        own = message.max_attempts
        return (self.limits[message.topic] if own is None else own) or None

    def untried(self, topic: str, key: str | None) -> bool:
        """Whether a message of this key stands ready that was never tried: the database lets no second one in."""
        return key is not None and any(
            (m.topic, m.key, m.attempts, m.lock) == (topic, key, 0, None) for m in self.live.values()
        )

    def held(self, claims: Iterable[Claim]) -> list[Live]:
        found = (self.live.get(message_id) for message_id, _ in claims)
        wanted = dict(claims)
        return [m for m in found if m and m.lock and m.lock.claim_id == wanted[m.id]]

    def lost(self, claims: list[Claim], result: str | None) -> list[int]:
        """Return what `claims` may not settle and did not settle before."""
        held = {m.id for m in self.held(claims)}
        return [i for i, claim_id in claims if i not in held and not self.was_settled(i, claim_id, result)]

    def was_settled(self, message_id: int, claim_id: int, result: str | None) -> bool:
        ended = self.archive.get(message_id)
        return bool(ended and ended.result == result and ended.message.lock and ended.message.lock.claim_id == claim_id)

    def end(self, message: Live, result: str) -> None:
        del self.live[message.id]
        self.archive[message.id] = Ended(message, result)

    def ready(self, topic: str, channel: str | None, priority: int) -> list[Live]:
        place = [m for m in self.due() if (m.topic, m.channel, m.priority) == (topic, channel, priority)]
        return sorted(place, key=lambda m: (m.available_at, m.id))

    def claim(self, claim_id: int, worker: str, topics: list[str], limit: int, lock_for: timedelta | None) -> list[int]:
        lock = Lock(claim_id, worker, self.now + (lock_for or LOCK_FOR))
        taken: list[int] = []
        for topic in sorted(topics):
            walks = [self.claim_topic(topic, limit), self.claim_channels(topic, limit)]
            for walk in walks if claim_id % 2 == 0 else reversed(walks):
                taken += self.take(walk, lock, limit - len(taken))
        return taken

    def claim_topic(self, topic: str, limit: int) -> Iterator[tuple[str, str | None, int, int]]:
        yield from ((topic, None, priority, limit) for priority in range(10))

    def claim_channels(self, topic: str, limit: int) -> Iterator[tuple[str, str | None, int, int]]:
        places = {(m.channel, m.priority) for m in self.live.values() if m.topic == topic and m.channel}
        yield from ((topic, channel, priority, 1) for channel, priority in sorted(places))

    def take(self, walk: Iterator[tuple[str, str | None, int, int]], lock: Lock, limit: int) -> list[int]:
        taken: list[int] = []
        for topic, channel, priority, quantum in walk:
            for message in self.ready(topic, channel, priority)[: min(quantum, limit - len(taken))]:
                most = self.limit(message)
                if most is not None and message.attempts >= most:
                    self.end(message, "failed")
                else:
                    self.live[message.id] = replace(message, lock=lock, attempts=message.attempts + 1)
                    taken.append(message.id)
        return taken

    def end_all(self, claims: list[Claim], result: str) -> list[int]:
        lost = self.lost(claims, result)
        for message in self.held(claims):
            self.end(message, result)
        return lost

    def retry(self, claims: list[Claim], delay: timedelta | None, result: str = "failed") -> list[int]:
        lost = self.lost(claims, result)
        for message in self.held(claims):
            most = self.limit(message)
            if most is not None and message.attempts >= most:
                self.end(message, result)
            else:
                wait = self.delay(message, result) if delay is None else max(delay, timedelta(0))
                self.live[message.id] = replace(
                    message, lock=None, available_at=self.now + wait, ended=min(message.ended + 1, 20)
                )
        return lost

    def delay(self, message: Live, result: str) -> timedelta:
        policy = POLICIES[message.topic]
        expired = policy.expired_delay if result == "lock_expired" else None
        return timedelta(seconds=policy.delay(message.attempts) if expired is None else expired)

    def hand_back(self, claims: list[Claim], delay: timedelta | None) -> list[int]:
        """Release (no delay) or defer."""
        lost = self.lost(claims, None)
        # The newest of a key first: those behind it find it ready and give way.
        for message in sorted(self.held(claims), key=lambda m: -m.id):
            if message.attempts == 1 and self.untried(message.topic, message.key):
                self.end(message, "cancelled")
                continue
            back = replace(message, lock=None, attempts=message.attempts - 1)
            if delay is not None:
                back = replace(back, available_at=self.now + delay, ended=min(message.ended + 1, 20))
            self.live[message.id] = back
        return lost

    def heartbeat(self, claims: list[Claim], lock_for: timedelta | None) -> list[int]:
        held = self.held(claims)
        for message in held:
            assert message.lock
            later = max(message.lock.expires_at, self.now + (lock_for or LOCK_FOR))
            self.live[message.id] = replace(message, lock=replace(message.lock, expires_at=later))
        return [i for i, _ in claims if i not in {m.id for m in held}]

    def expire_locks(self) -> int:
        expired = [(m.id, m.lock.claim_id) for m in self.live.values() if m.lock and m.lock.expires_at < self.now]
        self.retry(expired, None, "lock_expired")
        return len(expired)

    def cancel(self, ids: list[int]) -> list[int]:
        cancelled = [self.live[i] for i in ids if i in self.live]
        for message in cancelled:
            self.end(message, "cancelled")
        return [m.id for m in cancelled]

    def redrivable(self, ids: list[int]) -> list[int]:
        dead = [self.archive[i].message for i in ids if i in self.archive and self.archive[i].result in DEAD]
        dead = [m for m in dead if m.id not in self.redriven and not self.untried(m.topic, m.key)]
        newest = {(m.topic, m.key): m.id for m in sorted(dead, key=lambda m: m.id)}
        return sorted(m.id for m in dead if m.key is None or newest[m.topic, m.key] == m.id)

    def redrive(self, archived_id: int, message_id: int, available_at: datetime) -> None:
        self.redriven.add(archived_id)
        self.live[message_id] = replace(
            self.archive[archived_id].message,
            id=message_id,
            available_at=available_at,
            attempts=0,
            ended=0,
            lock=None,
            redriven_from=archived_id,
        )


topics = st.sampled_from(sorted(POLICIES))
workers = st.sampled_from(["w1", "w2"])
seconds = st.sampled_from([0, 1, 5, 15, 30, 61]).map(lambda s: timedelta(seconds=s))
seconds_of_patience = st.sampled_from([0, 0, 1, 5]).map(lambda s: timedelta(seconds=s))
lock_times = st.sampled_from([None, timedelta(seconds=5), timedelta(seconds=61)])
descriptions = st.fixed_dictionaries(
    {
        "topic": topics,
        "channel": st.sampled_from([None, None, "a", "b"]),
        "key": st.sampled_from([None, None, "k"]),
        "priority": st.sampled_from([0, 5, 5, 9]),
        "max_attempts": st.sampled_from([None, None, 0, 1, 2]),
        "wait": st.sampled_from([0, 0, 0, 5, 60]),
    }
)


def some_claims(claims: Any) -> Any:
    return st.lists(claims, min_size=1, max_size=3, unique_by=lambda claim: claim[0])


class Lifecycle(RuleBasedStateMachine):
    """Everything that anybody can do to messages."""

    messages = Bundle("messages")
    claims = Bundle("claims")

    def __init__(self, queue: Queue) -> None:
        super().__init__()
        self.queue = queue
        self.model = Model()
        queue.conn.execute(EMPTY.encode())
        self.show_time()

    def show_time(self) -> None:
        self.queue.conn.execute("SELECT set_config('messages.fake_now', %s, false)", [self.model.now.isoformat()])

    @initialize(target=messages, described=st.lists(descriptions, min_size=2, max_size=4))
    def begin(self, described: list[dict[str, Any]]) -> Any:
        return multiple(*(message_id for each in described for message_id in self.published(**each)))

    @rule(target=messages, described=descriptions)
    def publish(self, described: dict[str, Any]) -> Any:
        return multiple(*self.published(**described))

    def published(self, topic: str, wait: int, **columns: Any) -> list[int]:
        """Publish a message, and return its id if the database takes it: a key is taken once."""
        available_at = self.model.now + timedelta(seconds=wait)
        if self.model.untried(topic, columns["key"]):
            with pytest.raises(errors.UniqueViolation):
                self.queue.publish(topic, available_at=available_at, **columns)
            return []
        message_id = self.queue.publish(topic, available_at=available_at, **columns)
        self.model.live[message_id] = Live(message_id, topic, available_at=available_at, **columns)
        return [message_id]

    @precondition(lambda self: self.model.due())
    @rule(target=claims, worker=workers, limit=st.integers(1, 5))
    def claim_of_all_topics(self, worker: str, limit: int) -> Any:
        return self.claims_what_the_model_claims(worker, sorted(POLICIES), limit, None)

    @precondition(lambda self: self.model.due())
    @rule(
        target=claims,
        worker=workers,
        wanted=st.lists(topics, min_size=1, unique=True),
        limit=st.integers(1, 5),
        lock_for=lock_times,
    )
    def claim(self, worker: str, wanted: list[str], limit: int, lock_for: timedelta | None) -> Any:
        return self.claims_what_the_model_claims(worker, wanted, limit, lock_for)

    def claims_what_the_model_claims(
        self, worker: str, wanted: list[str], limit: int, lock_for: timedelta | None
    ) -> Any:
        got = self.queue.claim(*wanted, worker=worker, limit=limit, lock_for=lock_for)
        claim_id = self.queue.value("SELECT last_value FROM messages.claim_id")

        assert [c.id for c in got] == self.model.claim(claim_id, worker, wanted, limit, lock_for)
        return multiple(*((c.id, c.claim_id) for c in got))

    # Settles, of what some worker once claimed, whether he holds it still or not.

    @rule(held=some_claims(claims))
    def complete(self, held: list[Claim]) -> None:
        self.told("complete", held, self.model.end_all(held, "success"))

    @rule(held=some_claims(claims))
    def reject(self, held: list[Claim]) -> None:
        self.told("reject", held, self.model.end_all(held, "rejected"), ["why"] * len(held))

    @rule(held=some_claims(claims))
    def fail(self, held: list[Claim]) -> None:
        self.told("fail", held, self.model.end_all(held, "failed"), ["why"] * len(held))

    @rule(held=some_claims(claims), delay=st.none() | seconds_of_patience)
    def retry(self, held: list[Claim], delay: timedelta | None) -> None:
        self.told("retry", held, self.model.retry(held, delay), ["why"] * len(held), [delay] * len(held))

    @rule(held=some_claims(claims), delay=seconds_of_patience)
    def defer(self, held: list[Claim], delay: timedelta) -> None:
        self.told("defer", held, self.model.hand_back(held, delay), [delay] * len(held))

    @rule(held=some_claims(claims))
    def release(self, held: list[Claim]) -> None:
        self.told("release", held, self.model.hand_back(held, None))

    @rule(held=some_claims(claims), lock_for=lock_times)
    def heartbeat(self, held: list[Claim], lock_for: timedelta | None) -> None:
        self.told("heartbeat", held, self.model.heartbeat(held, lock_for), lock_for)

    def told(self, kind: str, held: list[Claim], expected: list[int], *arguments: Any) -> None:
        lost = self.queue.call(kind, [i for i, _ in held], [claim_id for _, claim_id in held], *arguments)
        assert sorted(lost) == sorted(expected)

    # Time, operators, upkeep

    @rule(by=seconds)
    def time_passes(self, by: timedelta) -> None:
        self.model.now += by
        self.show_time()

    @precondition(lambda self: self.model.running())
    @rule(by=seconds)
    def locks_expire(self, by: timedelta) -> None:
        self.time_passes(by)
        assert self.queue.call("expire_locks") == self.model.expire_locks()

    @precondition(lambda self: self.model.running())
    @rule(worker=workers)
    def release_forgotten(self, worker: str) -> None:
        """A worker that knows nothing of what it holds gives it all back."""
        held = [(m.id, m.lock.claim_id) for m in self.model.running() if m.lock and m.lock.worker == worker]
        self.model.hand_back(held, None)

        assert sorted(self.queue.call("release_forgotten", worker, [])) == sorted(i for i, _ in held)

    @rule(most=st.integers(1, 3))
    def upkeep(self, most: int) -> None:
        """A limit is changed and marks are raised."""
        self.queue.policy("thrice", max_attempts=most)
        self.model.limits["thrice"] = most
        self.queue.conn.execute("UPDATE messages.low_water_mark SET next_run_at = 'epoch'")
        self.queue.value("SELECT messages.raise_low_water('0 s')")

    @precondition(lambda self: len(self.model.live) > 3)
    @rule(ids=st.lists(messages, min_size=1, max_size=2, unique=True))
    def cancel(self, ids: list[int]) -> None:
        assert sorted(self.queue.call("cancel", ids)) == sorted(self.model.cancel(ids))

    @precondition(lambda self: any(e.result in DEAD for e in self.model.archive.values()))
    @rule(target=messages, ids=st.lists(messages, min_size=1, max_size=6, unique=True))
    def redrive(self, ids: list[int]) -> Any:
        put_back = dict(self.queue.rows("SELECT * FROM messages.redrive(%s)", [ids]))

        assert sorted(put_back) == self.model.redrivable(ids)
        for archived_id, message_id in put_back.items():
            # Its time is the server's clock, which stands long before the model's.
            self.model.redrive(archived_id, message_id, self.queue.message(message_id).available_at)
        return multiple(*put_back.values())

    @invariant()
    def every_message_is_in_exactly_one_place_and_as_the_model_says(self) -> None:
        live = self.queue.rows(
            """
            SELECT id, attempts, claim_id, locked_by, lock_expires_at, available_at, redriven_from,
                   coalesce(jsonb_array_length(history), 0) AS ended
            FROM messages.message
            """
        )
        archive = self.queue.rows(
            "SELECT id, attempts, claim_id, result, redriven_from FROM messages.message_archive ORDER BY id"
        )

        assert {row.id: tuple(row)[1:] for row in live} == {
            m.id: (
                m.attempts,
                *((m.lock.claim_id, m.lock.worker, m.lock.expires_at) if m.lock else (None, None, None)),
                *(m.available_at, m.redriven_from, m.ended),
            )
            for m in self.model.live.values()
        }
        assert [tuple(row) for row in archive] == [
            (i, e.message.attempts, e.message.lock and e.message.lock.claim_id, e.result, e.message.redriven_from)
            for i, e in sorted(self.model.archive.items())
        ]


@pytest.mark.timeout(120 if EXAMPLES <= 120 else 0)
def test_messages_live_and_end_as_the_model_says(db: psycopg.Connection[Any]) -> None:
    db.execute(SET_POLICIES)

    class OnThisDatabase(Lifecycle):
        def __init__(self) -> None:
            super().__init__(Queue(db))

    run_state_machine_as_test(
        OnThisDatabase,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
