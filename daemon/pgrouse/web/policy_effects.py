"""What a change of a policy does, in a sentence."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from pgrouse.client.policy_change import SettingChange
from pgrouse.config.duration import show
from pgrouse.config.topic_policy import DEFAULTS, NO_LIMIT, PolicyTable, given_settings


def describe_effect(topic: str, change: SettingChange) -> str:
    """Describe in a sentence what a change of policy does."""
    if change.new is None:
        if topic == DEFAULTS:
            return "Topics without a value of their own have none."
        return "The topic inherits the default, also when it changes later."
    sentence = EFFECTS.get(change.setting)
    return sentence(change.new) if sentence else ""


def _limit_sentence(setting: str, lifted: str, limited: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return the sentence of a setting of which one value means: no limit."""
    return lambda value: lifted if value == NO_LIMIT[setting] else limited(value)


def _duration(value: timedelta) -> str:
    return show(value)


def _count(value: float, noun: str) -> str:
    return f"{value:,g} {noun}" if value == 1 else f"{value:,g} {noun}s"


def _backoff(value: Any) -> str:
    parts = (
        value
        if isinstance(value, dict)
        else given_settings(value, type(value))
        if isinstance(value, PolicyTable)
        else {}
    )
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
    "max_attempts": _limit_sentence(
        "max_attempts",
        "A message is tried until it succeeds, however often it fails.",
        lambda n: (
            f"A message that fails is tried {_count(n, 'time')} in all; then it is dead."
            if n > 1
            else "A message that fails once is dead, and so is one whose worker dies."
        ),
    ),
    "lock_duration": lambda t: (
        f"When a worker dies, its messages are free again after {_duration(t)}. Messages that run now keep their lock."
    ),
    "timeout": lambda t: f"A handler that runs for longer than {_duration(t)} is stopped, and the attempt has failed.",
    "backoff": _backoff,
    "lock_expired_delay": lambda t: f"A message whose worker died waits {_duration(t)} before it is tried again.",
    "strict_lock": lambda on: (
        "A worker whose lock has expired cannot settle its message, even if no other worker has claimed it."
        if on
        else "A worker whose lock has expired can still settle its message as long as no other worker has claimed it."
    ),
    "breaker": lambda _: (
        "When too many attempts fail, the topic stops by itself, and tries again with a few messages after the pause."
    ),
    "max_concurrency": _limit_sentence(
        "max_concurrency",
        "The concurrency of the workers is the only limit.",
        lambda n: (
            f"At most {_count(n, 'message')} of the topic run at once, over all workers; others wait. Those that run now go on."
        ),
    ),
    "dequeue_rate": _limit_sentence(
        "dequeue_rate",
        "Messages begin as fast as workers take them.",
        lambda n: f"At most {_count(n, 'message')} of the topic begin per second, over all workers; others wait.",
    ),
    "burst": lambda n: f"After a quiet time up to {_count(n, 'message')} may pass at once.",
    "publish_rate": _limit_sentence(
        "publish_rate",
        "Publishers may publish as fast as they can.",
        lambda n: f"Publishing more than {_count(n, 'message')} per second is an error.",
    ),
    "channel_concurrency": _limit_sentence(
        "channel_concurrency",
        "Messages of one channel run side by side without a limit.",
        lambda n: f"At most {_count(n, 'message')} of each channel run at once, over all workers.",
    ),
    "channel_min_interval": _limit_sentence(
        "channel_min_interval",
        "Messages of one channel begin as soon as they can.",
        lambda t: f"Within a channel at least {_duration(t)} pass between the beginnings of two messages.",
    ),
    "ordered": lambda on: (
        "Within a channel a message begins only after all earlier ones have ended; one that is tried again holds up those behind it."
        if on
        else "Messages of a channel no longer wait for the earlier ones."
    ),
    "max_depth": _limit_sentence(
        "max_depth",
        "Any number of messages may wait.",
        lambda n: f"The topic is full when {_count(n, 'message')} wait in it; on_full decides what happens then.",
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
    "ttl": _limit_sentence(
        "ttl",
        "Messages wait for as long as it takes.",
        lambda t: (
            f"A message that has waited {_duration(t)} without being begun ends as expired. This holds for messages published from then on."
        ),
    ),
    "key_ttl": _limit_sentence(
        "key_ttl",
        "A key is free again as soon as its message has begun.",
        lambda t: f"For {_duration(t)} after its message has ended a key publishes nothing new.",
    ),
    "key_on_retry": lambda word: (
        "A message that would be tried again gives way to a newer one of its key."
        if word == "supersede"
        else "A message that is tried again stays beside a newer one of its key."
    ),
    "notify": lambda word: {
        "auto": "A publish notifies only if a sleeping worker would otherwise find the message too late.",
        "always": "Every publish notifies, also for listeners outside of pgrouse; this makes publishing slower.",
        "off": "No publish notifies: workers find messages by polling.",
    }.get(word, ""),
    "registered": lambda on: "It is a registered topic." if on else "It is no registered topic.",
    "archive_success": lambda word: {
        "full": "Messages that succeeded are archived with their payload.",
        "no_payload": "Messages that succeeded are archived without their payload: they cannot be replayed.",
        "none": "Messages that succeeded are not archived.",
    }.get(word, ""),
    "retention": lambda t: (
        f"Archived messages older than {_duration(t)} are deleted by the next maintenance, and cannot be brought back."
    ),
    "dead_letter": lambda on: (
        "Each dead message also gets a live copy in the topic with .dlq behind its name."
        if on
        else "Dead messages stay in the archive only."
    ),
    "max_redrives": _limit_sentence(
        "max_redrives",
        "A dead message may be redriven any number of times.",
        lambda n: f"A message may be redriven {_count(n, 'time')}; then only by force.",
    ),
}
