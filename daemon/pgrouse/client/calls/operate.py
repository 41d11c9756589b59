"""Operations on live messages and on topics."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pgrouse.client.call import Call, bigints, function_call, interval, json_text, value
from pgrouse.config.duration import AnyDuration


def cancel(ids: Sequence[int], reason: str | None = None) -> Call[list[int]]:
    """End messages, waiting or running; the ids of those that had not ended before."""
    return function_call("cancel", value, ids=bigints(ids), reason=reason)


def delete(ids: Sequence[int]) -> Call[list[int]]:
    """Delete waiting messages without a trace; the ids of those that were deleted."""
    return function_call("delete", value, ids=bigints(ids))


def skip(ids: Sequence[int], reason: str | None = None) -> Call[list[int]]:
    """End waiting messages as failed, so that an ordered channel goes on; the ids of those that were ended."""
    return function_call("skip", value, ids=bigints(ids), reason=reason)


def retry_now(ids: Sequence[int]) -> Call[list[int]]:
    """Make messages that wait for a time available at once; the ids of those that waited."""
    return function_call("retry_now", value, ids=bigints(ids))


def edit(id: int, payload: str | None = None, headers: str | None = None, seen: str | None = None) -> Call[str]:
    """Replace the payload or headers of a waiting message, both JSON; edited, changed, running or ended.

    Args:
        id: which message.
        payload: the new one; None leaves the old.
        headers: the new ones; None leaves the old.
        seen: the md5 of the payload that the editor saw; if it is another by now, nothing is replaced.
    """
    return function_call("edit", value, id=id, payload=payload, headers=headers, seen=seen)


def reencrypt(
    ids: Sequence[int],
    seen: Sequence[str],
    bodies: Sequence[bytes | None],
    states: Sequence[str | None],
    key: str,
) -> Call[list[int]]:
    """Replace the ciphertext of waiting messages; the ids of those that were as they were seen.

    Args:
        ids: which messages.
        seen: the md5 of the body and the checkpoint of each.
        bodies: the new body of each; None leaves the old.
        states: the new checkpoint of each, JSON; None leaves the old.
        key: the name of the key under which they are encrypted now.
    """
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
    """Delete waiting messages of a topic, at most limit, none with an id above upto; how many that were."""
    return function_call("purge_topic", value, topic=topic, limit=limit, upto=upto)


def pause(
    topic: str,
    reason: str | None = None,
    resume_in: AnyDuration | None = None,
    until: datetime | None = None,
    channel: str | None = None,
) -> Call[datetime | None]:
    """Pause a topic ('*': all) or one channel of it; until when, None = until it is resumed."""
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
    """End a pause; whether there was one."""
    return function_call("resume", value, topic=topic, channel=channel)
