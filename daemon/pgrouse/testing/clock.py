"""The clock of the queue in one session."""

from __future__ import annotations

from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from pgrouse.config import duration
from pgrouse.config.duration import AnyDuration
from pgrouse.database.run_sync import run_sync
from pgrouse.publishing.drivers import driver_of
from pgrouse.publishing.statement import Statement

SET = "SELECT set_config('messages.fake_now', %(moment)s::text, false)"
LATER = "SELECT set_config('messages.fake_now', (messages.now() + %(moment)s::text::interval)::text, false)"


class at:  # noqa: N801 - it is called like a function: with at(conn, tomorrow)
    """Set the time for everything that this connection claims, expires or fires: `with at(conn, timedelta(hours=2)):`.

    Use `async with` on an async connection. It has an effect only in a session of the superuser or of the owner of the
    schema. All other sessions use the server's time.

    Args:
        conn: a connection of any kind that `publish` takes.
        moment: a time with its time zone; or how much later: a timedelta, seconds, or "2h".
    """

    def __init__(self, conn: Any, moment: datetime | AnyDuration) -> None:
        self._driver = driver_of(conn)
        if not isinstance(moment, datetime):
            later = duration.to_timedelta(moment, "moment")
            self._set = Statement(LATER, {"moment": f"{later.total_seconds():.6f} s"})
        elif moment.tzinfo is None:
            raise ValueError(
                "at() needs a time with its time zone: a naive one means another moment on another machine"
            )
        else:
            self._set = Statement(SET, {"moment": moment.astimezone(UTC).isoformat()})

    async def __aenter__(self) -> None:
        await self._driver.fetch_row(self._set)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A failed transaction resets the setting; another statement would hide the error.
        if kind is None:
            await self._driver.fetch_row(Statement(SET, {"moment": ""}))

    def __enter__(self) -> None:
        run_sync(self.__aenter__())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run_sync(self.__aexit__(kind, error, trace))
