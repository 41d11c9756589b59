"""Silences of alerts, as forms of the dashboard add and end them."""

from __future__ import annotations

from datetime import timedelta

from fastapi import Request

from pgrouse.client.call import run_async
from pgrouse.client.calls.monitoring import alert
from pgrouse.client.queries.alert import find_silence, find_silences
from pgrouse.config import duration
from pgrouse.web.access.caller import Caller, Role
from pgrouse.web.access.database_pool import Connection, Row, read_rows, run_write, writing
from pgrouse.web.access.security import check_permission
from pgrouse.web.http.problem import Problem

MAX_SILENCE = timedelta(days=30)


async def read_silences(conn: Connection, caller: Caller) -> list[Row]:
    """Return the active silences that concern only topics of the caller, those that end first first."""
    return [row for row in await read_rows(conn, find_silences()) if _may_operate(caller, Role.VIEWER, row["topic"])]


def _may_operate(caller: Caller, role: Role, topic: str | None) -> bool:
    """Return whether a caller has a role for a silence.

    A silence for a pattern, or for no topic, concerns topics of others.
    """
    return caller.may(role, topic if topic and "*" not in topic else None)


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
    check_permission(caller, Role.OPERATOR, topic if topic and "*" not in topic else None)
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


async def end_silence(request: Request, caller: Caller, silence_id: int) -> None:
    """End a silence.

    Raises:
        Problem: 403, it concerns topics of others; 404, there is none.
    """
    async with writing(request, caller) as conn:
        found = await run_async(conn, find_silence(silence_id))
        if found is None:
            raise Problem(404, f"there is no silence {silence_id}", "not_found")
        # The refusal does not name the topic: those of others are not shown.
        if not _may_operate(caller, Role.OPERATOR, found.topic):
            raise Problem(
                403,
                f"{caller.name} does not have the role operator for all topics of silence {silence_id}",
                "forbidden",
                needs="operator",
            )
        await run_async(conn, alert.unsilence(silence_id))
