"""What a change of a policy does, in a sentence."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from pgrouse.config.duration import show
from pgrouse.client.policy_change import Change
from pgrouse.config.topic_policy import DEFAULTS, NO_LIMIT, Knobs, named


def effect(topic: str, change: Change) -> str:
    """Return what follows from a change, for whoever is about to make it."""
    if change.new is None:
        if topic == DEFAULTS:
            return "No topic has it any more, unless it has its own."
        return "From then on what the defaults say holds here, also when they change."
    sentence = EFFECTS.get(change.knob)
    return sentence(change.new) if sentence else ""


def _unless(knob: str, lifted: str, limited: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return the sentence of a knob of which one value means: no limit."""
    return lambda value: lifted if value == NO_LIMIT[knob] else limited(value)


def _time(value: timedelta) -> str:
    return show(value)


def _count(value: float, noun: str) -> str:
    return f"{value:,g} {noun}" if value == 1 else f"{value:,g} {noun}s"


def _backoff(value: Any) -> str:
    parts = value if isinstance(value, dict) else named(value, type(value)) if isinstance(value, Knobs) else {}
    base = parts.get("base", "1s")
    text = show(base) if isinstance(base, timedelta) else str(base)
    match parts.get("kind"):
        case "none":
            return "A message that failed is tried again at once."
        case "constant":
            return f"Each new attempt begins {text} after the one that failed."
        case "linear":
            return f"The first new attempt begins {text} after the failure, and each later one waits longer by the same step."
        case _:
            return f"The first new attempt begins about {text} after the failure, and each later one waits a multiple of that, up to the cap."


EFFECTS: dict[str, Callable[[Any], str]] = {
    "max_attempts": _unless(
        "max_attempts",
        "A message is tried until it succeeds, however often it fails.",
        lambda n: (
            f"A message that fails is tried {_count(n, 'time')} in all; then it is dead."
            if n > 1
            else "A message that fails once is dead, and so is one whose worker dies."
        ),
    ),
    "lock_for": lambda t: (
        f"When a worker dies, its messages are free again after {_time(t)}. Messages that run now keep their lock."
    ),
    "run_timeout": lambda t: f"A handler that runs for longer than {_time(t)} is stopped, and the attempt has failed.",
    "backoff": _backoff,
    "on_lock_expired_delay": lambda t: f"A message whose worker died waits {_time(t)} before it is tried again.",
    "strict_lock": lambda on: (
        "A worker that comes too late cannot settle its message, even if nobody else took it."
        if on
        else "A worker that comes too late can still settle its message as long as nobody else took it."
    ),
    "breaker": lambda _: (
        "When too many attempts fail, the topic stops by itself, and tries again with a few messages after the pause."
    ),
    "max_concurrency": _unless(
        "max_concurrency",
        "As many messages run at once as the workers have places.",
        lambda n: (
            f"At most {_count(n, 'message')} of the topic run at once, over all workers; others wait. Those that run now go on."
        ),
    ),
    "dequeue_rate": _unless(
        "dequeue_rate",
        "Messages begin as fast as workers take them.",
        lambda n: f"At most {_count(n, 'message')} of the topic begin per second, over all workers; others wait.",
    ),
    "burst": lambda n: f"After a quiet time up to {_count(n, 'message')} may pass at once.",
    "publish_rate": _unless(
        "publish_rate",
        "Publishers may publish as fast as they can.",
        lambda n: f"Who publishes more than {_count(n, 'message')} per second gets an error.",
    ),
    "channel_concurrency": _unless(
        "channel_concurrency",
        "Messages of one channel run side by side without a limit.",
        lambda n: f"At most {_count(n, 'message')} of each channel run at once, over all workers.",
    ),
    "channel_min_interval": _unless(
        "channel_min_interval",
        "Messages of one channel begin as soon as they can.",
        lambda t: f"Within a channel at least {_time(t)} pass between the beginnings of two messages.",
    ),
    "ordered": lambda on: (
        "Within a channel a message begins only after all earlier ones have ended; one that is tried again holds up those behind it."
        if on
        else "Messages of a channel no longer wait for the earlier ones."
    ),
    "max_depth": _unless(
        "max_depth",
        "Any number of messages may wait.",
        lambda n: f"The topic is full when {_count(n, 'message')} stand in it; on_full says what publishers get then.",
    ),
    "on_full": lambda word: (
        "A publish to the full topic is an error, and the publisher's transaction ends."
        if word == "error"
        else "A message for the full topic is dropped without an error: it is lost."
    ),
    "max_payload_bytes": lambda n: f"Larger payloads than {n:,} bytes are refused at the publish.",
    "payload_schema": lambda value: (
        "Any JSON may be published."
        if value is True
        else "A payload that does not fit the schema is refused at the publish, or rejected by the worker."
    ),
    "ttl": _unless(
        "ttl",
        "Messages wait for as long as it takes.",
        lambda t: (
            f"A message that has waited {_time(t)} without being begun ends as expired. This holds for messages published from then on."
        ),
    ),
    "key_ttl": _unless(
        "key_ttl",
        "A key is free again as soon as its message has begun.",
        lambda t: f"For {_time(t)} after its message has ended a key publishes nothing new.",
    ),
    "key_retry": lambda word: (
        "A message that would be tried again gives way to a newer one of its key."
        if word == "supersede"
        else "A message that is tried again stays beside a newer one of its key."
    ),
    "notify": lambda word: {
        "auto": "A publish rings only while a worker sleeps that would look too late.",
        "always": "Every publish rings, for listeners outside of pgrouse too; it makes publishing slower.",
        "off": "No publish rings: workers find messages when they look by themselves.",
    }.get(word, ""),
    "registered": lambda on: "It is a registered topic." if on else "It is no registered topic.",
    "keep_success": lambda word: {
        "full": "Messages that succeeded are archived with their payload.",
        "no_payload": "Messages that succeeded are archived without their payload: they cannot be replayed.",
        "none": "Messages that succeeded leave no trace.",
    }.get(word, ""),
    "retention": lambda t: (
        f"Archived messages older than {_time(t)} are deleted by the next maintenance, and cannot be brought back."
    ),
    "dead_letter": lambda on: (
        "Each dead message also gets a live copy in the topic with .dlq behind its name."
        if on
        else "Dead messages stay in the archive only."
    ),
    "max_redrives": _unless(
        "max_redrives",
        "A dead message may be put back any number of times.",
        lambda n: f"A message may be put back {_count(n, 'time')}; then only by force.",
    ),
}
