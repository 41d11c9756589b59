"""The web application: builds its parts, and names everything that it serves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import structlog
from fastapi import FastAPI
from starlette.routing import Route
from starlette.types import ASGIApp

from pgrouse import events
from pgrouse.config.config import Config
from pgrouse.worker import loop
from pgrouse.web import metrics, pages, problem, v1
from pgrouse.web import static_files as asset
from pgrouse.web import live_updates as hub
from pgrouse.web import probes as live
from pgrouse.web.large_body import Aside
from pgrouse.web.database_pool import Database
from pgrouse.web.security import Doorkeeper, Gate
from pgrouse.web.live_updates import Hub
from pgrouse.web.token_cache import Keyring
from pgrouse.web.maintenance import Maintenance
from pgrouse.web.publish_batcher import Press
from pgrouse.web.http_workers import Roll
from pgrouse.web.publish_fast_path import shortcut
from pgrouse.web.long_poll import Wake

if TYPE_CHECKING:
    from pgrouse.crypto.cipher import Cipher

log = structlog.get_logger()


def application(settings: Config) -> FastAPI:
    """Return the app. What its routes work with is in `request.app.state`.

    `settings`, `db` (see Database), `keyring`, `doorkeeper`, `hub` (see Hub), and `stopping`: an asyncio.Event that is set when the server is told to stop,
    at which streams end.
    """
    app = FastAPI(
        title="pgrouse", docs_url=None, redoc_url=None, openapi_url=None, lifespan=_life, redirect_slashes=False
    )
    app.state.settings = settings
    app.state.db = Database(settings)
    app.state.keyring = Keyring(app.state.db, settings.web.session)
    app.state.doorkeeper = Doorkeeper(settings, app.state.keyring)
    app.state.aside = Aside()
    app.state.press = Press(app.state.db)
    app.state.cipher = _cipher(settings)
    app.state.roll = Roll(app.state.db)
    app.state.wake = Wake(app.state.db, settings.web.pool_size)
    app.state.stopping = asyncio.Event()
    app.state.settled = 0
    app.state.hub = Hub(app.state.db, pages.VIEWS, app.state.stopping)
    problem.install(app)
    app.router.routes.append(asset.ROUTE)
    routers = [live.router, metrics.router, hub.router, *v1.ROUTERS, *pages.ROUTERS]
    for router in routers:
        app.include_router(router)
    # Those that a path may lead to, whatever the method.
    app.state.routes = [each for router in routers for each in router.routes if isinstance(each, Route)]
    return app


def _cipher(settings: Config) -> Cipher | None:
    if settings.crypto.current is None:
        return None
    from pgrouse.crypto.keyless_cipher import cipher_or_lock  # noqa: PLC0415 - only where it is configured

    return cipher_or_lock(settings)


def guarded(app: FastAPI) -> ASGIApp:
    """Return the app behind its gate: what the server runs."""
    return Gate(shortcut(app), app.state.settings, app.state.doorkeeper)


@asynccontextmanager
async def _life(app: FastAPI) -> AsyncIterator[None]:
    await app.state.db.open()
    maintaining = _maintaining(app)
    try:
        yield
    finally:
        app.state.stopping.set()
        if maintaining is not None:
            maintaining.cancel()
            await asyncio.wait([maintaining])
        await app.state.hub.close()
        await app.state.wake.close()
        await app.state.db.close()


def _maintaining(app: FastAPI) -> asyncio.Task[None] | None:
    settings = app.state.settings
    if not settings.web.tick:
        return None
    tick_s = settings.worker.tick.total_seconds()
    maintenance = Maintenance(app.state.db.connecting, tick_s, lambda: app.state.settled)
    task = asyncio.create_task(loop.run(maintenance), name="maintenance")
    task.add_done_callback(_tell)
    return task


def _tell(task: asyncio.Task[None]) -> None:
    """Say of what the maintenance died: the pages and the API go on without it, so nobody else would."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error(events.WEB_FAILED, reason=type(error).__name__, exc_info=error)
