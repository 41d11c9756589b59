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


class Shop:
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
def shop(database: Database) -> Shop:
    queue = Queue(database.connect())
    prepare(queue)
    return Shop(queue)


def work_on_after_the_lock(shop: Shop) -> None:
    """A worker loses its lock, another one begins, and then the first one reports how it ended."""
    shop.publish("often")
    late = shop.claim("often", lock_duration="0 s")
    shop.queue.call("expire_locks")
    shop.claim("often")
    shop.settle("complete", late, "success")


def beat_after_the_lock(shop: Shop) -> None:
    """A worker extends a lock that it has lost."""
    shop.publish("often")
    late = shop.claim("often", lock_duration="0 s")
    shop.queue.call("expire_locks")
    shop.queue.settle("heartbeat", late)


def succeed(shop: Shop) -> None:
    shop.publish("often")
    shop.settle("complete", shop.claim("often"), "success")


def expire_early(shop: Shop) -> None:
    shop.publish("often")
    shop.claim("often")
    shop.queue.call("expire_locks")


def expire(shop: Shop) -> None:
    shop.publish("once")
    shop.claim("once", lock_duration="0 s")
    shop.queue.call("expire_locks")


def publish_below_the_mark(shop: Shop) -> None:
    """The queue of a topic that was claimed from has a mark; then the maintenance runs."""
    shop.publish("unhandled")
    shop.settle("complete", shop.claim("unhandled"), "success")
    shop.publish("unhandled")
    shop.queue.call("raise_low_water")


def give_back(shop: Shop) -> None:
    shop.publish("unhandled")
    shop.settle("release", shop.claim("unhandled"), "released")


def claim_again_and_again(topic: str) -> Callable[[Shop], None]:
    def claim(shop: Shop) -> None:
        for _ in range(30):
            shop.publish(topic, channel="a" if topic == "line" else None)
        for _ in range(3):
            shop.claim(topic, limit=30)

    return claim


def fill_and_empty(shop: Shop) -> None:
    shop.publish("full")
    shop.settle("complete", shop.claim("full"), "success")


def reject(shop: Shop) -> None:
    shop.publish("lettered")
    shop.settle("reject", shop.claim("lettered"), "rejected", "the payload is wrong")


SEEN: dict[str, tuple[Callable[[Shop], None], str]] = {
    "a settle without the fence": (work_on_after_the_lock, "an attempt ended as its handler never reported"),
    "an archive in two transactions": (succeed, "a committed publish is not in exactly one table"),
    "a heartbeat that resurrects": (beat_after_the_lock, "a claim counts no attempt"),
    "an expire_locks without the time": (expire_early, "a lock was reported as expired before it was"),
    "an end that is archived twice": (expire, "a message is in the archive twice"),
    "a low-water mark that is raised too far": (publish_below_the_mark, "a message is below the low-water mark"),
    "a release that forgets": (give_back, "a message is locked although no worker runs"),
    "a claim that counts no attempt": (succeed, "a claim counts no attempt"),
    "a limit that is not counted": (claim_again_and_again("few"), "more ran at once than the limit allows"),
    "an order that is not kept": (claim_again_and_again("line"), "a channel was not worked in order"),
    "a rate that is not charged": (claim_again_and_again("metered"), "more was claimed than its rate allows"),
    "a depth that is not lowered": (fill_and_empty, "a depth is not the number of messages"),
    "a death without an alert": (reject, "the alerts do not add up to the dead messages"),
    "a death without its copy": (reject, "a dead letter is not one copy"),
}


def test_every_break_has_its_test() -> None:
    assert SEEN.keys() == BREAKS.keys()


@pytest.mark.parametrize("name", BREAKS)
def test_it_finds_each_break(name: str, shop: Shop) -> None:
    """The same steps in an intact queue violate no rule; in the broken one they violate this rule."""
    deed, rule = SEEN[name]
    BREAKS[name].install(shop.queue.conn)

    deed(shop)

    assert rule in shop.findings()


def test_in_an_intact_queue_it_finds_nothing(shop: Shop) -> None:
    for deed in (succeed, reject, fill_and_empty, expire, give_back, publish_below_the_mark):
        deed(shop)
    again = shop.publish("often", "effect")
    for how, function, arguments in (("failed", "retry", ("boom", "0 s")), ("deferred", "defer", ("0 s",))):
        shop.settle(function, shop.claim("often"), how, *arguments)
    with shop.queue.conn.transaction():
        (claimed,) = shop.claim("often")
        shop.effect(claimed)
        assert shop.settle("complete", [claimed], "success") == []
    shop.ledger.redriven[again] = 0
    shop.queue.rows("SELECT * FROM messages.redrive(ARRAY(SELECT id FROM messages.dead WHERE topic = 'lettered'))")
    shop.settle("complete", shop.claim("lettered"), "success")

    assert shop.findings() == ""


def test_it_finds_a_missing_message(shop: Shop) -> None:
    shop.queue.conn.execute("DELETE FROM messages.message WHERE id = %s", [shop.publish("unhandled")])

    assert "a message is in neither table" in shop.findings()
    assert "a committed publish is not in exactly one table" in shop.findings()


def test_it_finds_a_refused_publish_that_exists(shop: Shop) -> None:
    shop.publish("unhandled")
    shop.ledger.refused += shop.ledger.committed
    shop.ledger.committed = []

    assert "refused and there" in shop.findings()


def test_it_finds_an_attempt_too_many(shop: Shop) -> None:
    shop.queue.conn.execute("UPDATE messages.message SET attempts = 7 WHERE id = %s", [shop.publish("often")])

    assert "a message has more attempts than it may have" in shop.findings()
    assert "a lock was taken over, or cut, or its attempt recounted" in shop.findings()


def test_it_finds_a_key_that_is_ready_twice(shop: Shop) -> None:
    shop.queue.conn.execute("DROP INDEX messages.message_key")
    for _ in range(2):
        shop.publish("unhandled", key="k")

    assert "a key is ready twice" in shop.findings()


def test_it_finds_an_effect_without_its_success(shop: Shop) -> None:
    shop.publish("once", "effect")
    (claimed,) = shop.claim("once")
    shop.effect(claimed)
    shop.settle("fail", [claimed], "failed", "the completion was forgotten")

    assert "an effect belongs to no success" in shop.findings()


def test_it_finds_a_success_without_its_effect(shop: Shop) -> None:
    shop.publish("once", "effect")
    shop.settle("complete", shop.claim("once"), "success")

    assert "a success has no effect" in shop.findings()


def test_it_finds_a_handler_that_began_without_a_claim(shop: Shop) -> None:
    shop.publish("once")
    (claimed,) = shop.claim("once")
    shop.journal[-1]["claim"] += 1
    shop.settle("complete", [claimed], "success")

    assert "a handler began without a claim" in shop.findings()


def test_it_finds_a_step_that_is_done_again_although_it_is_saved(shop: Shop) -> None:
    shop.publish("stepped", "step")
    (claimed,) = shop.claim("stepped")
    shop.step(claimed, "buy")
    shop.queue.call("save_step", claimed.id, claimed.claim_id, "buy", Jsonb(7))
    assert "a step was done again" not in shop.findings()

    time.sleep(2 * GRAIN_S)
    shop.step(claimed, "buy")

    assert "a step was done again although it is saved" in shop.findings()


def test_it_finds_a_message_of_ack_first_that_is_begun_twice(shop: Shop) -> None:
    shop.publish("first")
    shop.claim("first", lock_duration="0 s")
    shop.queue.call("expire_locks")
    shop.settle("complete", shop.claim("first"), "success")

    assert "a message of ack_first was begun twice" in shop.findings()
