"""The HTTP API and the dashboard inside of another ASGI application.

    application.mount("/queue", pgrouse.web.app("pgrouse.toml"))

The lifespan of a mounted application is not run by the one around it: this one starts with the first request, on the
event loop of that request, and ends with the loop.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from pgrouse.alerts.sinks import read_sinks
from pgrouse.config import config
from pgrouse.config.dsn import is_dsn
from pgrouse.web.access.security import OUTER_SCOPE, Authenticate
from pgrouse.web.application import create_app, with_security

# How often it is looked whether the server is asked to stop: until streams end it would wait for them.
STOP_CHECK_S = 0.25


def app(
    source: config.Config | Path | str | None = None,
    *,
    authenticate: Authenticate | None = None,
    allowed_hosts: Sequence[str] = (),
) -> MountedApp:
    """Return an ASGI application to mount.

    No one is let in without a token (`pgrouse token add`) or the consent of `authenticate`, from this machine neither.
    `[log]` and `web.listen` of the configuration do not count.

    Args:
        source: a configuration file, or a connection string. Unless given, the file that `pgrouse web` would read.
        authenticate: called with each request; returns the Caller that your application knows it to be, or None: then
            the request needs a token. It may be async.
        allowed_hosts: names under which browsers reach your application, in addition to `web.allowed_hosts`.

    Raises:
        ConfigError: the configuration cannot be used.
    """
    settings = _read(source)
    read_sinks(settings)
    hosts = [*settings.web.allowed_hosts, *allowed_hosts]
    checked = settings.web.model_validate({**dict(settings.web), "allowed_hosts": hosts})
    return MountedApp(settings.model_copy(update={"web": checked}), authenticate)


def _read(source: config.Config | Path | str | None) -> config.Config:
    if isinstance(source, config.Config):
        return source
    if isinstance(source, str) and is_dsn(source):
        return config.load_for_worker(None, {"database": {"dsn": source}})
    return config.load_for_worker(config.find(Path(source) if source else None), {})


@dataclass(frozen=True)
class _Started:
    """The application on one event loop."""

    loop: asyncio.AbstractEventLoop
    guarded: ASGIApp
    task: asyncio.Task[None]
    is_ready: asyncio.Event


class MountedApp:
    """An ASGI application that starts by itself.

    Args:
        settings: sections `web`, `database` and `crypto`.
        authenticate: see `app`.
    """

    def __init__(self, settings: config.Config, authenticate: Authenticate | None = None) -> None:
        self._settings, self._authenticate = settings, authenticate
        self._started: _Started | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "lifespan":
            await _run_lifespan(self.lifespan, receive, send)
            return
        started = await self._start()
        await started.guarded({**scope, "state": {}, OUTER_SCOPE: scope}, receive, send)

    @asynccontextmanager
    async def lifespan(self, _app: object = None) -> AsyncIterator[None]:
        """Run it for a block: to connect before the first request, and to close before the event loop ends."""
        await self._start()
        try:
            yield
        finally:
            await self.close()

    async def close(self) -> None:
        """End streams and close all connections; the next request starts it again."""
        started, self._started = self._started, None
        if started is not None and started.loop is asyncio.get_running_loop():
            started.task.cancel()
            await asyncio.wait([started.task])

    async def _start(self) -> _Started:
        """Return what is started on this event loop; tests may have one for each request."""
        loop = asyncio.get_running_loop()
        started = self._started
        if started is None or started.loop is not loop or started.task.done():
            inner = create_app(self._settings, self._authenticate, is_mounted=True)
            is_ready = asyncio.Event()
            task = loop.create_task(_live(inner, is_ready), name="pgrouse web")
            started = self._started = _Started(loop, with_security(inner), task, is_ready)
        ready = asyncio.ensure_future(started.is_ready.wait())
        await asyncio.wait([ready, started.task], return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        if started.task.done():
            started.task.result()
        return started


async def _live(inner: FastAPI, is_ready: asyncio.Event) -> None:
    """Keep the application running until cancelled: by `close`, or by the end of the event loop."""
    async with inner.router.lifespan_context(inner):
        is_ready.set()
        while not _is_server_stopping():  # noqa: ASYNC110 - the server has no event for it
            await asyncio.sleep(STOP_CHECK_S)
        inner.state.stopping.set()
        inner.state.long_poll.wake_all()
        await asyncio.Event().wait()


def _is_server_stopping() -> bool:
    """Return whether uvicorn was asked to stop.

    It waits for open streams, and tells them nothing; its signal handler is a method of it.
    """
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return getattr(server, "should_exit", False) is True


async def _run_lifespan(lifespan: Any, receive: Receive, send: Send) -> None:
    """Run the lifespan protocol, for a server that runs this application alone."""
    await receive()
    async with lifespan():
        await send({"type": "lifespan.startup.complete"})
        await receive()
    await send({"type": "lifespan.shutdown.complete"})
