"""The hub: what keeps pages up to date while somebody looks at them.

All who look at the same page with the same rights share one show: it is read and rendered once, at most once a second, only while something has
changed, and each viewer is sent the parts that differ from what he has. There are no queues: whoever is slow gets the newest state next, and
nothing in between. Nobody watches: nothing is read, and after a while nothing listens.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import psycopg
import structlog
from fastapi import APIRouter, Depends, Request
from psycopg_pool import PoolTimeout
from starlette.responses import Response, StreamingResponse

from pgrouse import events
from pgrouse.config.dsn import redact
from pgrouse.web.caller import Caller, Role
from pgrouse.web.database_pool import Database
from pgrouse.web.change_listener import Ear
from pgrouse.web.security import needs
from pgrouse.web.problem import Problem
from pgrouse.web.view import View

log = structlog.get_logger()

router = APIRouter(include_in_schema=False)

# So that with the time it takes to read a change is seen within a second.
EVERY_S = 0.9
# At most this part of the time is spent on reading for one show, however long it takes.
SHARE = 0.1
# Ages go on while nothing changes; and what was missed is made good.
AT_LEAST_EVERY_S = 5.0
BEAT_S = 5.0
# How often a stream looks whether its viewer may still see it.
CHECK_EVERY_S = 30.0
# Who goes from page to page is away for a moment.
LINGER_S = 15.0
MOST_VIEWERS = 500
AWAY = "The database does not answer."


@dataclass(frozen=True)
class Scope:
    """What viewers have in common who are shown the same.

    Attributes:
        view: the name of the view.
        subject: of it.
        caller: their rights, without a name.
    """

    view: str
    subject: str
    caller: Caller


class Turn:
    """Wakes all who wait, each time it is made."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def make(self) -> None:
        """Wake them."""
        event, self._event = self._event, asyncio.Event()
        event.set()

    def next(self) -> asyncio.Event:
        """Return what is set by the next one. Take it before you look at what may have changed."""
        return self._event


@dataclass
class Show:
    """One view of one subject, as viewers of the same rights see it.

    Attributes:
        viewers: how many look at it.
        version: how often something in it has changed.
        trouble: why it is not up to date; "" if it is.
        parts: each with its version; so are the charts.
    """

    viewers: int = 0
    version: int = 0
    trouble: str = ""
    parts: dict[str, tuple[int, str]] = field(default_factory=dict)
    charts: dict[str, tuple[int, str]] = field(default_factory=dict)
    turn: Turn = field(default_factory=Turn)
    _written: tuple[tuple[int, int], bytes] | None = None

    def put(self, parts: Mapping[str, str], charts: Mapping[str, Any]) -> None:
        """Take in how it looks now."""
        written = {name: json.dumps(chart, separators=(",", ":")) for name, chart in charts.items()}
        version = self.version + 1
        changed = [_merge(self.parts, parts, version), _merge(self.charts, written, version)]
        if any(changed):
            self.version = version
        if any(changed) or self.trouble:
            self.trouble = ""
            self.turn.make()

    def fail(self, trouble: str) -> None:
        """Say that it is not up to date."""
        if self.trouble != trouble:
            self.trouble = trouble
            self.turn.make()

    def news(self, seen: int) -> bytes:
        """Return what has changed since a version, as an event of the stream. Viewers who are equally far share the text."""
        key = (seen, self.version)
        if self._written is None or self._written[0] != key:
            parts = {name: text for name, (version, text) in self.parts.items() if version > seen}
            charts = ",".join(
                f"{json.dumps(name)}:{text}" for name, (version, text) in self.charts.items() if version > seen
            )
            body = f'{{"now":{time.time():.3f},"parts":{json.dumps(parts)},"charts":{{{charts}}}}}'
            self._written = (key, _event("update", body))
        return self._written[1]


def _merge(known: dict[str, tuple[int, str]], now: Mapping[str, str], version: int) -> bool:
    """Take in what differs; say whether anything does."""
    changed = {name: (version, text) for name, text in now.items() if known.get(name, (0, None))[1] != text}
    known.update(changed)
    return bool(changed)


def _event(name: str, data: str) -> bytes:
    return f"event: {name}\ndata: {data}\n\n".encode()


class Hub:
    """What keeps the shows of one web server up to date.

    Args:
        db: where they are read.
        views: those that there are, by name.
        stopping: set when the server is told to stop: streams end.
    """

    def __init__(self, db: Database, views: Mapping[str, View], stopping: asyncio.Event) -> None:
        self.db, self.views, self.stopping = db, views, stopping
        self.changed = Turn()
        self.ear = Ear(db.connecting, self.changed.make)
        self.shows: dict[Scope, Show] = {}
        self.reads = 0
        self._tasks: dict[Scope, asyncio.Task[None]] = {}
        self._listening: asyncio.Task[None] | None = None
        self._leaving: asyncio.TimerHandle | None = None
        # One show is read at a time: pages that live must not take the connections of those that load.
        self._reading = asyncio.Semaphore(1)

    def poke(self) -> None:
        """Say that something was changed here: whoever looks is shown it at once."""
        self.changed.make()

    async def close(self) -> None:
        """End everything that runs."""
        if self._leaving:
            self._leaving.cancel()
        running = [task for task in (*self._tasks.values(), self._listening) if task]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def stream(self, request: Request, scope: Scope) -> AsyncIterator[bytes]:
        """Yield the events for one viewer: `update`, `away` (why it is not live), and `beat` at least every five seconds."""
        seen, check_at = 0, time.monotonic() + CHECK_EVERY_S
        yield b": pgrouse\n\n"
        async with self._watched(scope) as show:
            while not self.stopping.is_set():
                turn = show.turn.next()
                if show.trouble:
                    yield _event("away", show.trouble)
                elif show.version > seen:
                    news, seen = show.news(seen), show.version
                    yield news
                else:
                    yield _event("beat", "")
                await self._wait(turn)
                if time.monotonic() > check_at:
                    check_at = time.monotonic() + CHECK_EVERY_S
                    if not await _may_still(request, scope.caller):
                        return

    async def _wait(self, turn: asyncio.Event) -> None:
        """Wait for a change, for the next beat, or for the end."""
        waiting = [asyncio.ensure_future(each.wait()) for each in (turn, self.stopping)]
        try:
            await asyncio.wait(waiting, timeout=BEAT_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()

    @asynccontextmanager
    async def _watched(self, scope: Scope) -> AsyncIterator[Show]:
        show = self.shows.setdefault(scope, Show())
        show.viewers += 1
        self._begin(scope, show)
        try:
            yield show
        finally:
            show.viewers -= 1
            self._end(scope, show)

    def _begin(self, scope: Scope, show: Show) -> None:
        if self._leaving:
            self._leaving = self._leaving.cancel()  # type: ignore[func-returns-value]
        if self._listening is None:
            self._listening = asyncio.create_task(self.ear.run(), name="web ear")
        if scope not in self._tasks:
            self._tasks[scope] = asyncio.create_task(self._keep(scope, show), name=f"web show {scope.view}")

    def _end(self, scope: Scope, show: Show) -> None:
        if show.viewers:
            return
        self._tasks.pop(scope).cancel()
        self.shows.pop(scope)
        if not self.shows and not self.stopping.is_set():
            self._leaving = asyncio.get_running_loop().call_later(LINGER_S, self._hush)

    def _hush(self) -> None:
        """Nobody has looked for a while: stop listening."""
        if self._listening and not self.shows:
            self._listening.cancel()
            self._listening = None

    async def _keep(self, scope: Scope, show: Show) -> None:
        """Keep one show up to date."""
        while True:
            changed, began = self.changed.next(), time.monotonic()
            async with self._reading:
                took = -time.monotonic()
                await self._read(scope, show)
                took += time.monotonic()
            pause = max(EVERY_S - (time.monotonic() - began), took * (1 / SHARE - 1))
            await asyncio.sleep(pause)
            if self.ear.hears:
                with suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), AT_LEAST_EVERY_S)

    async def _read(self, scope: Scope, show: Show) -> None:
        view = self.views[scope.view]
        self.reads += 1
        try:
            async with self.db.read() as conn:
                context = await view.look(conn, scope.caller, scope.subject)
            show.put(view.render_parts(context, scope.caller), context.get("charts", {}))
        except Problem as problem:
            show.fail(f"{problem.detail}.")
        except (psycopg.Error, PoolTimeout, OSError, TimeoutError) as error:
            if not show.trouble:
                log.warning(events.WEB_DATABASE_AWAY, reason=redact(" ".join(str(error).split())))
            show.fail(AWAY)
        except Exception:  # a show that ended would stay as it is for ever, and say so to nobody
            log.exception(events.WEB_FAILED, reason=f"view {scope.view}")
            show.fail("Something went wrong on the server's side; its log has it.")


async def _may_still(request: Request, before: Caller) -> bool:
    """Say whether the viewer still has the rights that his stream began with. While the database is away nobody can tell."""
    request.state.identified = None  # who he was when it began is not asked
    try:
        caller: Caller = await request.app.state.doorkeeper.caller(request)
    except Problem as problem:
        return bool(problem.status == 503)  # noqa: PLR2004
    except (psycopg.Error, OSError, TimeoutError):
        return True
    return replace(caller, name="") == before


@router.get("/live/{name}")
async def live(
    request: Request, name: str, caller: Annotated[Caller, Depends(needs(Role.VIEWER))], subject: str = ""
) -> Response:
    """Stream what changes in a view."""
    hub: Hub = request.app.state.hub
    if name not in hub.views:
        raise Problem(404, f"there is no view {name!r:.100}", "not_found")
    if sum(show.viewers for show in hub.shows.values()) >= MOST_VIEWERS:
        raise Problem(503, f"{MOST_VIEWERS} pages are watched already: load this one by hand", "too_many_viewers")
    if hub.stopping.is_set():
        raise Problem(503, "the server stops", "unavailable")
    scope = Scope(name, subject, replace(caller, name=""))
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(hub.stream(request, scope), media_type="text/event-stream", headers=headers)
