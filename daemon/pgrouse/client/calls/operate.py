"""Operations on live messages and on topics."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pgrouse.client.call import Call, bigints, binding, function_call, json_text, value
from pgrouse.config.duration import AnyDuration


@binding
def cancel(ids: Sequence[int], reason: str | None = None) -> Call[list[int]]:
    """End messages, waiting or running; return the ids of those that had not ended before."""


@binding
def delete(ids: Sequence[int]) -> Call[list[int]]:
    """Delete waiting messages without a trace; return their ids."""


@binding
def skip(ids: Sequence[int], reason: str | None = None) -> Call[list[int]]:
    """End waiting messages as failed; return their ids."""


@binding
def retry_now(ids: Sequence[int]) -> Call[list[int]]:
    """Make messages that wait for a time available at once; return their ids."""


@binding
def edit(id: int, payload: str | None = None, headers: str | None = None, seen: str | None = None) -> Call[str]:
    """Replace the payload or the headers of a waiting message; return edited, changed, running or ended."""


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


@binding
def purge_topic(topic: str, limit: int | None = None, upto: int | None = None) -> Call[int]:
    """Delete waiting messages of a topic; return how many."""


@binding
def pause(
    topic: str,
    reason: str | None = None,
    resume_in: AnyDuration | None = None,
    until: datetime | None = None,
    channel: str | None = None,
) -> Call[datetime | None]:
    """Pause a topic ('*': all) or one channel of it; return until when, None = until it is resumed."""


@binding
def resume(topic: str, channel: str | None = None) -> Call[bool]:
    """End a pause; return whether there was one."""
