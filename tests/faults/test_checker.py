"""The checker finds what it must find: each way to break the queue, in the smallest run that shows it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.faults.breaks import BREAKS
from tests.faults.checker import GRAIN_S, Checker
from tests.faults.ledger import Group, Ledger
from tests.faults.system import prepare
from tests.server.postgres import Database
from tests.sql.queue import Queue, Row


class Harness:
    """A publisher, some workers and the checker of all their records."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.ledger = Ledger()
        self.journal: list[dict[str, Any]] = []

    def publish(self, topic: str, do: str = "succeed", **columns: Any) -> int:
        """Publish one message and record it."""
        with self.ledger.recorded(Group(topic, [f"t{len(self.ledger.committed)}"], columns.get("channel"))) as group:
            group.ids = [self.queue.publish(topic, payload=Jsonb({"tag": group.tags[0], "do": do}), **columns)]
        return group.ids[0]

    def claim(self, topic: str, *, limit: int = 1, lock_duration: str | None = None) -> list[Row]:
        """Claim, and record that the handlers began."""
        claimed = self.queue.claim(topic, limit=limit, lock_duration=lock_duration)
        for row in claimed:
            self._note("start", row)
        return claimed

    def settle(self, function: str, claimed: list[Row], how: str, *arguments: Any) -> list[int]:
        """Record how the handlers ended, and settle that."""
        for row in claimed:
            self._note("reported", row, how=how)
        return self.queue.settle(function, claimed, *([a] * len(claimed) for a in arguments))

    def effect(self, row: Row) -> None:
        """Store an effect of a handler."""
        self.queue.conn.execute("INSERT INTO effect VALUES (%s, %s)", [row.id, row.claim_id])

    def step(self, row: Row, name: str) -> None:
        """Record a step of a handler."""
        self._note("stepped", row, step=name)

    def findings(self) -> str:
        """Return what the checker finds."""
        checker = Checker(self.ledger)
        found = [*checker.check_all(self.queue.conn, self.journal), *checker.left(self.queue.conn)]
        return "\n".join(map(str, found))

    def _note(self, what: str, row: Row, **more: Any) -> None:
        entry = {"what": what, "id": row.id, "claim": row.claim_id, "topic": row.topic, "at": time.time()}
        self.journal.append({**entry, "attempt": row.attempt, **more})


@pytest.fixture
def harness(database: Database) -> Harness:
    queue = Queue(database.connect())
    prepare(queue)
    return Harness(queue)


def settle_after_the_lock(harness: Harness) -> None:
    """A worker loses its lock, another one begins, and then the first one reports how it ended."""
    harness.publish("often")
    late = harness.claim("often", lock_duration="0 s")
    harness.queue.call("expire_locks")
    harness.claim("often")
    harness.settle("complete", late, "success")


def heartbeat_after_the_lock(harness: Harness) -> None:
    """A worker extends a lock that it has lost."""
    harness.publish("often")
    late = harness.claim("often", lock_duration="0 s")
    harness.queue.call("expire_locks")
    harness.queue.settle("heartbeat", late)


def succeed(harness: Harness) -> None:
    harness.publish("often")
    harness.settle("complete", harness.claim("often"), "success")


def expire_early(harness: Harness) -> None:
    harness.publish("often")
    harness.claim("often")
    harness.queue.call("expire_locks")


def expire(harness: Harness) -> None:
    harness.publish("once")
    harness.claim("once", lock_duration="0 s")
    harness.queue.call("expire_locks")


def publish_below_the_mark(harness: Harness) -> None:
    """The queue of a topic that was claimed from has a mark; then the maintenance runs."""
    harness.publish("unhandled")
    harness.settle("complete", harness.claim("unhandled"), "success")
    harness.publish("unhandled")
    harness.queue.call("raise_low_water")


def release(harness: Harness) -> None:
    harness.publish("unhandled")
    harness.settle("release", harness.claim("unhandled"), "released")


def claim_repeatedly(topic: str) -> Callable[[Harness], None]:
    def claim(harness: Harness) -> None:
        for _ in range(30):
            harness.publish(topic, channel="a" if topic == "line" else None)
        for _ in range(3):
            harness.claim(topic, limit=30)

    return claim


def fill_and_empty(harness: Harness) -> None:
    harness.publish("full")
    harness.settle("complete", harness.claim("full"), "success")


def reject(harness: Harness) -> None:
    harness.publish("lettered")
    harness.settle("reject", harness.claim("lettered"), "rejected", "the payload is wrong")


SEEN: dict[str, tuple[Callable[[Harness], None], str]] = {
    "a settle without the fence": (settle_after_the_lock, "an attempt ended as its handler never reported"),
    "an archive in two transactions": (succeed, "a committed publish is not in exactly one table"),
    "a heartbeat that resurrects": (heartbeat_after_the_lock, "a claim counts no attempt"),
    "an expire_locks without the time": (expire_early, "a lock was reported as expired before it was"),
    "an end that is archived twice": (expire, "a message is in the archive twice"),
    "a low-water mark that is raised too far": (publish_below_the_mark, "a message is below the low-water mark"),
    "a release that forgets": (release, "a message is locked although no worker runs"),
    "a claim that counts no attempt": (succeed, "a claim counts no attempt"),
    "a limit that is not counted": (claim_repeatedly("few"), "more ran at once than the limit allows"),
    "a limit of a worker that is not counted": (claim_repeatedly("timed"), "more run on a worker than"),
    "an order that is not kept": (claim_repeatedly("line"), "a channel was not processed in order"),
    "a rate that is not charged": (claim_repeatedly("metered"), "more was claimed than its rate allows"),
    "a depth that is not lowered": (fill_and_empty, "a depth is not the number of messages"),
    "a death without an alert": (reject, "the alerts do not add up to the dead messages"),
    "a death without its copy": (reject, "a dead letter is not one copy"),
}


def test_every_break_has_its_test() -> None:
    assert SEEN.keys() == BREAKS.keys()


@pytest.mark.parametrize("name", BREAKS)
def test_it_finds_each_break(name: str, harness: Harness) -> None:
    """The same steps in an intact queue violate no rule; in the broken one they violate this rule."""
    run, rule = SEEN[name]
    BREAKS[name].install(harness.queue.conn)

    run(harness)

    assert rule in harness.findings()


def test_in_an_intact_queue_it_finds_nothing(harness: Harness) -> None:
    for run in (succeed, reject, fill_and_empty, expire, release, publish_below_the_mark):
        run(harness)
    again = harness.publish("often", "effect")
    for how, function, arguments in (("failed", "retry", ("boom", "0 s")), ("deferred", "defer", ("0 s",))):
        harness.settle(function, harness.claim("often"), how, *arguments)
    with harness.queue.conn.transaction():
        (claimed,) = harness.claim("often")
        harness.effect(claimed)
        assert harness.settle("complete", [claimed], "success") == []
    harness.ledger.redriven[again] = 0
    harness.queue.rows("SELECT * FROM messages.redrive(ARRAY(SELECT id FROM messages.dead WHERE topic = 'lettered'))")
    harness.settle("complete", harness.claim("lettered"), "success")

    assert harness.findings() == ""


def test_it_finds_a_missing_message(harness: Harness) -> None:
    harness.queue.conn.execute("DELETE FROM messages.message WHERE id = %s", [harness.publish("unhandled")])

    assert "a message is in neither table" in harness.findings()
    assert "a committed publish is not in exactly one table" in harness.findings()


def test_it_finds_a_refused_publish_that_exists(harness: Harness) -> None:
    harness.publish("unhandled")
    harness.ledger.refused += harness.ledger.committed
    harness.ledger.committed = []

    assert "refused and there" in harness.findings()


def test_it_finds_an_attempt_too_many(harness: Harness) -> None:
    harness.queue.conn.execute("UPDATE messages.message SET attempts = 7 WHERE id = %s", [harness.publish("often")])

    assert "a message has more attempts than it may have" in harness.findings()
    assert "a lock was taken over, or cut, or its attempt recounted" in harness.findings()


def test_it_finds_a_key_that_is_ready_twice(harness: Harness) -> None:
    harness.queue.conn.execute("DROP INDEX messages.message_key")
    for _ in range(2):
        harness.publish("unhandled", key="k")

    assert "a key is ready twice" in harness.findings()


def test_it_finds_an_effect_without_its_success(harness: Harness) -> None:
    harness.publish("once", "effect")
    (claimed,) = harness.claim("once")
    harness.effect(claimed)
    harness.settle("fail", [claimed], "failed", "the completion was forgotten")

    assert "an effect belongs to no success" in harness.findings()


def test_it_finds_a_success_without_its_effect(harness: Harness) -> None:
    harness.publish("once", "effect")
    harness.settle("complete", harness.claim("once"), "success")

    assert "a success has no effect" in harness.findings()


def test_it_finds_a_handler_that_began_without_a_claim(harness: Harness) -> None:
    harness.publish("once")
    (claimed,) = harness.claim("once")
    harness.journal[-1]["claim"] += 1
    harness.settle("complete", [claimed], "success")

    assert "a handler began without a claim" in harness.findings()


def test_it_finds_a_step_that_is_done_again_although_it_is_saved(harness: Harness) -> None:
    harness.publish("stepped", "step")
    (claimed,) = harness.claim("stepped")
    harness.step(claimed, "buy")
    harness.queue.call("save_step", claimed.id, claimed.claim_id, "buy", Jsonb(7))
    assert "a step was done again" not in harness.findings()

    time.sleep(2 * GRAIN_S)
    harness.step(claimed, "buy")

    assert "a step was done again although it is saved" in harness.findings()


def test_it_finds_a_message_of_ack_first_that_is_begun_twice(harness: Harness) -> None:
    harness.publish("first")
    harness.claim("first", lock_duration="0 s")
    harness.queue.call("expire_locks")
    harness.settle("complete", harness.claim("first"), "success")

    assert "a message of ack_first was begun twice" in harness.findings()
