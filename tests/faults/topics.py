"""The topics of a storm: their policies, their handlers, and what is published to them."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

SHORT_LOCK = {"lock_duration": "1.5 s", "lock_expired_delay": "0 s", "backoff": {"kind": "constant", "base": "100ms"}}
RUN_TIMEOUT_S = 1.5


@dataclass(frozen=True)
class Topic:
    """One topic.

    Attributes:
        actions: what its handlers do, chosen at random.
        settings: its policy.
        handler: how it is run; None = no worker handles it.
        channels: the names of its channels.
        keys: how many keys there are; 0 = its messages have none.
        lasting: whether its claims survive a crash of the server: it has a limit, an order, or one attempt.
    """

    actions: tuple[str, ...] = ("succeed",)
    settings: dict[str, Any] = field(default_factory=dict)
    handler: dict[str, Any] | None = field(default_factory=lambda: {"handler": "scripted:run"})
    channels: str = ""
    keys: int = 0
    lasting: bool = False

    def payload(self, tag: str, chance: Random) -> dict[str, Any]:
        """Return a payload of this topic."""
        payload: dict[str, Any] = {
            "tag": tag,
            "do": chance.choice(self.actions),
            "for": chance.choice((0, 0, 0, 0.01, 0.05)),
        }
        if chance.random() < 0.2:
            payload["fails"] = chance.randint(1, 2)
        if payload["do"] == "nap":
            payload["for"] = chance.uniform(0.3, 2.5)
        if payload["do"].startswith("step"):
            payload["for"] = chance.choice((0, 0.1, 0.5))
        if payload["do"] == "effect":
            payload["within"] = chance.choice((0, 0, 0.05, 0.3))
        return payload


REMOTE = "remote"
RACED = ["raced-a", "raced-b"]
EVERY_END = (
    "succeed",
    "succeed",
    "succeed",
    "effect",
    "effect",
    "effect then raise",
    "reject",
    "fail",
    "raise",
    "retry",
    "defer",
    "nap",
)

TOPICS = {
    "once": Topic(EVERY_END, {"max_attempts": 1}, lasting=True),
    "often": Topic((*EVERY_END, "block"), {"max_attempts": 6}),
    "few": Topic(
        ("succeed", "succeed", "succeed", "effect", "effect", "nap", "raise"),
        {"max_attempts": 4, "max_concurrency": 3},
        lasting=True,
    ),
    "line": Topic(("succeed", "effect", "raise"), {"max_attempts": 3, "ordered": True}, channels="abcd", lasting=True),
    "fair": Topic(
        ("succeed", "succeed", "effect", "effect", "nap"),
        {"max_attempts": 3, "channel_concurrency": 2},
        channels="xyz",
        lasting=True,
    ),
    "keyed": Topic(("succeed", "effect", "raise", "retry", "defer"), {"max_attempts": 3}, keys=12),
    "brief": Topic(("succeed", "effect"), {"max_attempts": 2, "ttl": "0.6 s", "max_concurrency": 2}, lasting=True),
    "full": Topic(("succeed", "effect", "raise"), {"max_attempts": 2, "max_depth": 20, "on_full": "drop"}),
    "metered": Topic(("succeed", "effect"), {"max_attempts": 3, "dequeue_rate": 40, "burst": 5}, lasting=True),
    "strict": Topic(("succeed", "effect", "nap"), {"max_attempts": 3, "strict_lock": True}),
    "threads": Topic(
        ("succeed", "effect", "effect then raise", "raise", "defer", "nap"),
        {"max_attempts": 3},
        {"handler": "scripted:run_in_thread"},
    ),
    "child": Topic(
        ("succeed", "succeed", "succeed", "succeed", "raise", "die", "nap"),
        {"max_attempts": 2, "timeout": f"{RUN_TIMEOUT_S} s"},
        {"handler": "scripted:run_in_process", "isolation": "process", "concurrency": 2},
    ),
    "timed": Topic(
        ("succeed", "nap", "effect"),
        {"max_attempts": 2, "timeout": f"{RUN_TIMEOUT_S} s", "worker_concurrency": 4},
    ),
    "first": Topic(
        ("succeed",), {"max_attempts": 3}, {"handler": "scripted:run_after_the_end", "ack_policy": "ack_first"}
    ),
    "batch": Topic(
        ("succeed", "reject"),
        {"max_attempts": 4},
        {"handler": "scripted:run_batch", "batch_size": 20, "batch_timeout": "0.05s"},
    ),
    "lettered": Topic(("succeed", "raise", "reject"), {"dead_letter": True}, lasting=True),
    "stepped": Topic(("step", "step", "step then raise"), {"max_attempts": 8}, {"handler": "scripted:run_steps"}),
    # Run over HTTP, by workers that die and that settle late.
    REMOTE: Topic((*["succeed"] * 12, "raise", "forget", "late"), {"max_attempts": 8}, handler=None),
    # Run by workers in SQL.
    **{name: Topic(settings={"max_attempts": 8}, handler=None) for name in RACED},
    # A topic without a handler, and a paused one: the checker examines their messages at the end.
    "unhandled": Topic(handler=None),
    "shut": Topic(
        settings={"max_attempts": 3, "paused_at": "2000-01-01", "paused_by": "the storm", "paused_reason": "night"}
    ),
}
# The topics that publishers use while daemons run, and while only workers over HTTP do.
PUBLISHED = [name for name in TOPICS if name not in (REMOTE, *RACED)]
WORKED = {name: topic.handler for name, topic in TOPICS.items() if topic.handler is not None}
LASTING = {name for name, topic in TOPICS.items() if topic.lasting}
TIMED = {name for name, topic in TOPICS.items() if "timeout" in topic.settings}
