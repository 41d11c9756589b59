"""Silences of alerts: who may add, see and end them, and how forms of the dashboard say it."""

from __future__ import annotations

from datetime import timedelta

from fastapi import Request

from pgrouse.client.call import run_async
from pgrouse.client.calls.monitoring import alert
from pgrouse.client.queries.alert import Silence, find_silence, find_silences
from pgrouse.config import duration
from pgrouse.web.access.caller import Caller, Role
from pgrouse.web.access.database_pool import Connection, run_write, writing
from pgrouse.web.access.security import check_permission
from pgrouse.web.http.problem import Problem

MAX_SILENCE = timedelta(days=30)


async def read_silences(conn: Connection, caller: Caller) -> list[Silence]:
    """Return the active silences that concern only topics of the caller, those that end first first."""
    return [each for each in await run_async(conn, find_silences()) if caller.may(Role.VIEWER, _scope(each.topic))]


def _scope(topic: str | None) -> str | None:
    """Return the topic that a silence concerns; None: topics of others too, as for a pattern or no topic."""
    return topic if topic and "*" not in topic else None


def check_silenced(caller: Caller, role: Role, topic: str | None) -> None:
    """Check that a caller has a role for what a silence of this topic concerns.

    Raises:
        Problem: 403.
    """
    check_permission(caller, role, _scope(topic))


async def add_silence(
    request: Request,
    caller: Caller,
    *,
    lasts: str,
    reason: str,
    kind: str | None = None,
    topic: str | None = None,
    fingerprint: str | None = None,
) -> None:
    """Silence the alerts that fit all that is given.

    Raises:
        Problem: 403, it concerns topics of others; 422, the time cannot be used, or nothing is given.
    """
    if not (kind or topic or fingerprint):
        raise Problem(422, "choose a kind, a topic or a fingerprint; the topic * is every topic", "invalid_silence")
    check_silenced(caller, Role.OPERATOR, topic)
    wanted = _read_time(lasts)
    call = alert.silence(kind, topic, fingerprint, wanted, reason=reason.strip() or None)
    await run_write(request, caller, call)


def _read_time(lasts: str) -> timedelta:
    try:
        wanted = duration.parse(lasts)
    except ValueError as error:
        raise Problem(422, f"for: {error}", "invalid_duration") from None
    if not timedelta(seconds=1) <= wanted <= MAX_SILENCE:
        raise Problem(422, f"for is {lasts!r}: use 1s to {duration.show(MAX_SILENCE)}", "invalid_duration")
    return wanted


async def end_silence(request: Request, caller: Caller, silence_id: int) -> bool:
    """End a silence; return whether it had not ended before.

    Raises:
        Problem: 403, it concerns topics of others; 404, there is none.
    """
    async with writing(request, caller) as conn:
        found = await run_async(conn, find_silence(silence_id))
        if found is None:
            raise Problem(404, f"there is no silence {silence_id}", "not_found")
        # The refusal does not name the topic: those of others are not shown.
        if not caller.may(Role.OPERATOR, _scope(found.topic)):
            raise Problem(
                403,
                f"{caller.name} does not have the role operator for all topics of silence {silence_id}",
                "forbidden",
                needs="operator",
            )
        return await run_async(conn, alert.unsilence(silence_id))
