"""Live updates: keeps open pages up to date.

All who look at the same page with the same rights share one view: it is read and rendered once, at most three times a
second, only while something has changed, and each viewer gets the parts that differ from what it has. There are no
queues: a slow viewer gets the newest state next, and nothing in between. Without viewers nothing is read, and after a
while nothing listens.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg
from fastapi import APIRouter, Request
from psycopg_pool import PoolTimeout, TooManyRequests
from starlette.responses import Response, StreamingResponse

from pgrouse.config.dsn import redact
from pgrouse.logging import events
from pgrouse.logging.event_logger import log
from pgrouse.process import loop
from pgrouse.web.access.caller import Caller
from pgrouse.web.access.database_pool import DatabasePool
from pgrouse.web.access.security import Viewer
from pgrouse.web.http.base_path import base_path, with_base_in_page
from pgrouse.web.http.problem import Problem, is_disconnect
from pgrouse.web.live.change_listener import ChangeListener
from pgrouse.web.page.view import Context, View

router = APIRouter()

# With the time that it takes to notice and to read it, a change is seen within half a second.
MIN_INTERVAL_S = 0.35
# Workers report their measures every few seconds.
MEASURES_MAX_AGE_S = 2.0
# At most this part of the time is spent on reading for one view. But one slow read, as on a machine that is busy for a
# moment, does not leave a page that calls itself live behind for longer than this.
MAX_READ_SHARE = 0.1
MAX_PAUSE_S = 10.0
# While the database is away, each view looks this often whether it is back.
RETRY_S = 1.0
# Ages go on while nothing changes; and what was missed is made good.
MAX_AGE_S = 5.0
HEARTBEAT_S = 5.0
# How often a stream looks whether its viewer may still see it.
CHECK_EVERY_S = 30.0
# A user who goes from page to page is away for a moment.
LINGER_S = 15.0
MAX_VIEWERS = 500
# The maximum for one token: views are read one after the other, and many views of one token would delay those of all.
MAX_VIEWERS_OF_TOKEN = 50
DATABASE_DOWN = "The database does not answer."


@dataclass(frozen=True)
class Audience:
    """What viewers of the same content have in common.

    Attributes:
        view: the name of the view.
        subject: of it.
        caller: their rights, without a name.
        base: where the application is mounted.
    """

    view: str
    subject: str
    caller: Caller
    base: str = ""


class Broadcast:
    """Wakes all waiting tasks on each notification."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Wake all waiting tasks."""
        event, self._event = self._event, asyncio.Event()
        event.set()

    def next_event(self) -> asyncio.Event:
        """Return the event that the next notification sets. Take it before reading what may have changed."""
        return self._event


@dataclass
class SharedView:
    """One view of one subject, as viewers of the same rights see it.

    Attributes:
        viewers: how many look at it.
        version: how often something in it has changed.
        stale_reason: why it is not up to date; "" if it is.
        parts: each with its version; so are the charts.
        measures: what the view read of the workers' measures, and when.
    """

    viewers: int = 0
    version: int = 0
    stale_reason: str = ""
    parts: dict[str, tuple[int, str]] = field(default_factory=dict)
    charts: dict[str, tuple[int, str]] = field(default_factory=dict)
    measures: Context = field(default_factory=dict)
    measures_at: float = -math.inf
    broadcast: Broadcast = field(default_factory=Broadcast)
    _written: tuple[tuple[int, int], bytes] | None = None

    def update(self, parts: Mapping[str, str], charts: Mapping[str, Any]) -> None:
        """Take in how it looks now."""
        written = {name: json.dumps(chart, separators=(",", ":")) for name, chart in charts.items()}
        version = self.version + 1
        changed = [_update_changed(self.parts, parts, version), _update_changed(self.charts, written, version)]
        if any(changed):
            self.version = version
        if any(changed) or self.stale_reason:
            self.stale_reason = ""
            self.broadcast.notify()

    def mark_stale(self, stale_reason: str) -> None:
        """Say that it is not up to date."""
        if self.stale_reason != stale_reason:
            self.stale_reason = stale_reason
            self.broadcast.notify()

    def changes_since(self, seen: int) -> bytes:
        """Return what has changed since a version, as an event of the stream.

        Viewers who are equally far share the text.
        """
        key = (seen, self.version)
        if self._written is None or self._written[0] != key:
            parts = {name: text for name, (version, text) in self.parts.items() if version > seen}
            charts = ",".join(
                f"{json.dumps(name)}:{text}" for name, (version, text) in self.charts.items() if version > seen
            )
            body = f'{{"now":{time.time():.3f},"parts":{json.dumps(parts)},"charts":{{{charts}}}}}'
            self._written = (key, _sse_event("update", body))
        return self._written[1]


def _update_changed(known: dict[str, tuple[int, str]], now: Mapping[str, str], version: int) -> bool:
    """Take in what differs; say whether anything does."""
    changed = {name: (version, text) for name, text in now.items() if known.get(name, (0, None))[1] != text}
    known.update(changed)
    return bool(changed)


def _sse_event(name: str, data: str) -> bytes:
    return f"event: {name}\ndata: {data}\n\n".encode()


class LiveUpdates:
    """What keeps the shared views of one web server up to date.

    Args:
        db: where they are read.
        views: those that there are, by name.
        stopping: set when the server is asked to stop: streams end.
    """

    def __init__(self, db: DatabasePool, views: Mapping[str, View], stopping: asyncio.Event) -> None:
        self.db, self.views, self.stopping = db, views, stopping
        self.changed = Broadcast()
        self.listener = ChangeListener(db.connector, self.changed.notify)
        self.shared_views: dict[Audience, SharedView] = {}
        self.reads = 0
        self.viewers_of: Counter[str] = Counter()
        self._tasks: dict[Audience, asyncio.Task[None]] = {}
        self._listen_task: asyncio.Task[None] | None = None
        self._linger_timer: asyncio.TimerHandle | None = None
        # One view is read at a time: pages that live must not take the connections of those that load.
        self._reading = asyncio.Semaphore(1)

    def notify(self) -> None:
        """Report a change made by this server, so that viewers see it at once."""
        self.changed.notify()

    async def close(self) -> None:
        """End everything that runs."""
        if self._linger_timer:
            self._linger_timer.cancel()
        running = [task for task in (*self._tasks.values(), self._listen_task) if task]
        await loop.end(running)

    async def stream(self, request: Request, audience: Audience, name: str) -> AsyncIterator[bytes]:
        """Yield the events for one viewer.

        They are `update`, `stale` (why it is not live), and `heartbeat` at least every five seconds. name: of its
        token.
        """
        seen, check_at = 0, time.monotonic() + CHECK_EVERY_S
        yield b": pgrouse\n\n"
        async with self._viewing(audience, name) as shared:
            while not self.stopping.is_set():
                broadcast = shared.broadcast.next_event()
                if shared.stale_reason:
                    yield _sse_event("stale", shared.stale_reason)
                elif shared.version > seen:
                    news, seen = shared.changes_since(seen), shared.version
                    yield news
                else:
                    yield _sse_event("heartbeat", "")
                await self._wait(broadcast)
                if time.monotonic() > check_at:
                    check_at = time.monotonic() + CHECK_EVERY_S
                    if not await _is_still_allowed(request, audience.caller):
                        return

    async def _wait(self, broadcast: asyncio.Event) -> None:
        """Wait for a change, for the next beat, or for the end."""
        waiting = [asyncio.ensure_future(each.wait()) for each in (broadcast, self.stopping)]
        try:
            await asyncio.wait(waiting, timeout=HEARTBEAT_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()

    @asynccontextmanager
    async def _viewing(self, audience: Audience, name: str) -> AsyncIterator[SharedView]:
        shared = self.shared_views.setdefault(audience, SharedView())
        shared.viewers += 1
        self.viewers_of[name] += 1
        self._add_viewer(audience, shared)
        try:
            yield shared
        finally:
            shared.viewers -= 1
            self.viewers_of -= Counter({name: 1})
            self._remove_viewer(audience, shared)

    def _add_viewer(self, audience: Audience, shared: SharedView) -> None:
        if self._linger_timer:
            self._linger_timer = self._linger_timer.cancel()  # type: ignore[func-returns-value]
        if self._listen_task is None:
            self._listen_task = asyncio.create_task(self.listener.run(), name="web listener")
        if audience not in self._tasks:
            self._tasks[audience] = asyncio.create_task(
                self._keep_current(audience, shared), name=f"web view {audience.view}"
            )

    def _remove_viewer(self, audience: Audience, shared: SharedView) -> None:
        if shared.viewers:
            return
        self._tasks.pop(audience).cancel()
        self.shared_views.pop(audience)
        if not self.shared_views and not self.stopping.is_set():
            self._linger_timer = asyncio.get_running_loop().call_later(LINGER_S, self._stop_listening)

    def _stop_listening(self) -> None:
        """Stop listening: there were no viewers for a while."""
        if self._listen_task and not self.shared_views:
            self._listen_task.cancel()
            self._listen_task = None

    async def _keep_current(self, audience: Audience, shared: SharedView) -> None:
        """Keep one view up to date."""
        while True:
            changed, began = self.changed.next_event(), time.monotonic()
            async with self._reading:
                is_away, took = await self._read(audience, shared)
            pause = max(MIN_INTERVAL_S - (time.monotonic() - began), took * (1 / MAX_READ_SHARE - 1))
            await asyncio.sleep(RETRY_S if is_away else min(pause, MAX_PAUSE_S))
            if self.listener.is_listening:
                # `wait_for` is not used: before Python 3.12 it ignores a cancellation that arrives together with the
                # change.
                with suppress(TimeoutError):
                    async with asyncio.timeout(MAX_AGE_S):
                        await changed.wait()

    async def _read(self, audience: Audience, shared: SharedView) -> tuple[bool, float]:
        """Read one view; return whether the database is away, and how long the read took.

        The wait for a connection does not count.
        """
        view = self.views[audience.view]
        self.reads += 1
        began = math.inf
        try:
            async with self.db.read() as conn:
                began = time.monotonic()
                context = await view.read_with_problems(conn, audience.caller, audience.subject)
                if time.monotonic() - shared.measures_at >= MEASURES_MAX_AGE_S:
                    shared.measures = await view.read_measures(conn, audience.caller, audience.subject)
                    shared.measures_at = time.monotonic()
                context |= shared.measures
            parts = view.render_parts(context, audience.caller)
            parts = {part: with_base_in_page(text, audience.base) for part, text in parts.items()}
            shared.update(parts, context.get("charts", {}))
        except Problem as problem:
            shared.mark_stale(f"{problem.detail}.")
        except (psycopg.Error, OSError, TimeoutError) as error:
            if not shared.stale_reason:
                log.warning(events.WEB_DATABASE_UNREACHABLE, reason=redact(" ".join(str(error).split())))
            shared.mark_stale(DATABASE_DOWN)
            if self._is_away(error):
                self._mark_all_stale()
                return True, 0.0
        except Exception:  # if the task ended, the view would stay stale
            log.exception(events.WEB_FAILED, reason=f"view {audience.view}")
            shared.mark_stale("Internal error: see the log of the server.")
        return False, max(0.0, time.monotonic() - began)

    def _is_away(self, error: Exception) -> bool:
        """Return whether the database is away, and not only slow or its connections busy."""
        if isinstance(error, PoolTimeout | TooManyRequests):
            return self.db.is_away
        return not isinstance(error, psycopg.Error) or is_disconnect(error)

    def _mark_all_stale(self) -> None:
        """Say on all pages what one has found.

        They are read one after the other, and each would have to wait for its turn.
        """
        for each in self.shared_views.values():
            each.mark_stale(DATABASE_DOWN)
        self.changed.notify()


async def _is_still_allowed(request: Request, before: Caller) -> bool:
    """Return whether the viewer still has the permissions that its stream began with.

    While the database is down, assume it has.
    """
    request.state.identified = None  # identify the caller again
    try:
        caller: Caller = await request.app.state.authenticator.caller(request)
    except Problem as problem:
        return bool(problem.status == 503)  # noqa: PLR2004
    except (psycopg.Error, OSError, TimeoutError):
        return True
    return replace(caller, name="") == before


@router.get("/live/{name}")
async def live(request: Request, name: str, caller: Viewer, subject: str = "") -> Response:
    """Stream what changes in a view."""
    live_updates: LiveUpdates = request.app.state.live_updates
    if name not in live_updates.views:
        raise Problem(404, f"there is no view {name!r:.100}", "not_found")
    if sum(shared.viewers for shared in live_updates.shared_views.values()) >= MAX_VIEWERS:
        raise Problem(503, f"{MAX_VIEWERS} live pages are open already: reload this one manually", "too_many_viewers")
    if live_updates.viewers_of[caller.name] >= MAX_VIEWERS_OF_TOKEN:
        raise Problem(
            503, f"{MAX_VIEWERS_OF_TOKEN} live pages of {caller.name} are open already: close some", "too_many_viewers"
        )
    if live_updates.stopping.is_set():
        raise Problem(503, "the server stops", "unavailable")
    audience = Audience(name, subject, replace(caller, name=""), base_path(request.scope))
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(
        live_updates.stream(request, audience, caller.name), media_type="text/event-stream", headers=headers
    )
