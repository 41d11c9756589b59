"""Operations on live messages and on topics."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pgrouse.client.call import Call, bigints, function_call, interval, json_text, value
from pgrouse.config.duration import AnyDuration


def cancel(ids: Sequence[int], reason: str | None = None) -> Call[list[int]]:
    """End messages, waiting or running; return the ids of those that had not ended before."""
    return function_call("cancel", value, ids=bigints(ids), reason=reason)


def delete(ids: Sequence[int]) -> Call[list[int]]:
    """Delete waiting messages without a trace; return their ids."""
    return function_call("delete", value, ids=bigints(ids))


def skip(ids: Sequence[int], reason: str | None = None) -> Call[list[int]]:
    """End waiting messages as failed; return their ids."""
    return function_call("skip", value, ids=bigints(ids), reason=reason)


def retry_now(ids: Sequence[int]) -> Call[list[int]]:
    """Make messages that wait for a time available at once; return their ids."""
    return function_call("retry_now", value, ids=bigints(ids))


def edit(id: int, payload: str | None = None, headers: str | None = None, seen: str | None = None) -> Call[str]:
    """Replace the payload or the headers of a waiting message; return edited, changed, running or ended."""
    return function_call("edit", value, id=id, payload=payload, headers=headers, seen=seen)


def reencrypt(
    ids: Sequence[int],
    seen: Sequence[str],
    bodies: Sequence[bytes | None],
    states: Sequence[str | None],
    key: str,
) -> Call[list[int]]:
    """Replace the ciphertext of waiting messages; return the ids of those that were changed."""
    return function_call(
        "reencrypt",
        value,
        ids=bigints(ids),
        seen=list(seen),
        bodies=list(bodies),
        states=[json_text(each) for each in states],
        key=key,
    )


def purge_topic(topic: str, limit: int | None = None, upto: int | None = None) -> Call[int]:
    """Delete waiting messages of a topic; return how many."""
    return function_call("purge_topic", value, topic=topic, limit=limit, upto=upto)


def pause(
    topic: str,
    reason: str | None = None,
    resume_in: AnyDuration | None = None,
    until: datetime | None = None,
    channel: str | None = None,
) -> Call[datetime | None]:
    """Pause a topic ('*': all) or one channel of it; return until when, None = until it is resumed."""
    return function_call(
        "pause",
        value,
        topic=topic,
        reason=reason,
        resume_in=interval(resume_in, "resume_in"),
        until=until,
        channel=channel,
    )


def resume(topic: str, channel: str | None = None) -> Call[bool]:
    """End a pause; return whether there was one."""
    return function_call("resume", value, topic=topic, channel=channel)
