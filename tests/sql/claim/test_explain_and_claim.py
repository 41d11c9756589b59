"""What explain returns agrees with claims.

No message is claimed that it calls held up, and every message is that it calls ready.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.sql.queue import Queue, Row

# Reasons why a message is not the next, not that it cannot be claimed.
NO_HINDRANCE = {"ready", "behind", "unhandled", "workers_busy"}
CHANNELS = (None, "a", "b")
SETTINGS: dict[str, list[Any]] = {
    "max_concurrency": [None, 0, 1, 3],
    "channel_concurrency": [None, 1, 2],
    "channel_min_interval": [None, "5 s"],
    "dequeue_rate": [None, 0.5, 2],
    "burst": [None, 1, 4],
    "ordered": [None, True],
    "max_attempts": [None, 2, 4],
    "ttl": [None, "20 s"],
    "breaker": [None, {"min_attempts": 1, "pause": "4 s", "probes": 1}],
}


class Simulation:
    """A queue with random events."""

    def __init__(self, queue: Queue, seed: int) -> None:
        self.queue = queue
        self.dice = random.Random(seed)
        self.running: list[Row] = []
        # Claims use random numbers; a run that is repeated must draw the same ones.
        queue.value("SELECT setseed(%s)", [seed / 100])
        queue.later("0")
        queue.policy("t", notify="auto")

    def step(self) -> None:
        """Do one random step."""
        happens = (self.publish, self.publish, self.claim, self.settle, self.settle, self.wait, self.pause, self.resume)
        self.dice.choice((*happens, self.change, self.tick))()

    def publish(self) -> None:
        count, channel = self.dice.randint(1, 3), self.dice.choice(CHANNELS)
        self.queue.publish_many(
            count, channel=channel, priority=self.dice.choice((1, 5)), wait=self.dice.choice(("0", "0", "7 s"))
        )

    def claim(self) -> None:
        self.running += self.queue.claim(limit=self.dice.randint(1, 4))

    def settle(self) -> None:
        if not self.running:
            return
        claimed = self.running.pop(self.dice.randrange(len(self.running)))
        how = self.dice.choice(("complete", "retry", "defer", "release"))
        arguments = {"retry": (["boom"], [self.dice.choice(("0", "6 s"))]), "defer": (["4 s"],)}
        self.queue.settle(how, [claimed], *arguments.get(how, ()))

    def wait(self) -> None:
        self.queue.later(self.dice.choice(("1 s", "3 s", "11 s")))

    def pause(self) -> None:
        topic, channel = self.dice.choice((("*", None), ("t", None), ("t", "a"), ("t", "b")))
        self.queue.call("pause", topic, resume_in=self.dice.choice((None, "2 s")), channel=channel)

    def resume(self) -> None:
        for topic, channel in (("*", None), ("t", None), ("t", "a"), ("t", "b")):
            self.queue.call("resume", topic, channel)

    def change(self) -> None:
        setting = self.dice.choice(list(SETTINGS))
        self.queue.policy("t", **{setting: self.dice.choice(SETTINGS[setting])})

    def tick(self) -> None:
        self.queue.rows("SELECT * FROM messages.tick('hand')")

    def explained(self) -> dict[int, set[str]]:
        """Return the reasons of each waiting message."""
        waiting = self.queue.rows("SELECT id FROM messages.message WHERE claim_id IS NULL ORDER BY id")
        return {
            row.id: {e.code for e in self.queue.rows("SELECT * FROM messages.explain(%s)", [row.id])} for row in waiting
        }

    def would_be_taken(self) -> set[int]:
        """Return what a claim without a bound would take now; it is rolled back."""
        with self.queue.conn.transaction(force_rollback=True):
            return {each.id for each in self.queue.claim(limit=1000)}


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 12))])
def test_explain_and_claims_agree_after_every_step(queue: Queue, seed: int) -> None:
    simulation = Simulation(queue, seed)

    for number in range(40):
        simulation.step()
        reasons, taken = simulation.explained(), simulation.would_be_taken()

        held_up = {each for each, codes in reasons.items() if codes - NO_HINDRANCE}
        next_ones = {each for each, codes in reasons.items() if not codes & {"behind"} and not codes - NO_HINDRANCE}
        assert taken & held_up == set(), (seed, number, {each: reasons[each] for each in taken & held_up})
        assert taken or not next_ones, (seed, number, reasons)
