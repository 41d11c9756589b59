"""The web application: creates its parts, and includes all routers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.routing import Route
from starlette.types import ASGIApp

from pgrouse.config.config import Config
from pgrouse.crypto.cipher import Cipher
from pgrouse.crypto.keyless_cipher import load_cipher_or_keyless
from pgrouse.handlers.declaration.loader import find_redact
from pgrouse.logging import events
from pgrouse.logging.event_logger import log
from pgrouse.process import loop
from pgrouse.web import metrics, pages, v1
from pgrouse.web.access.database_pool import DatabasePool
from pgrouse.web.access.oidc import OidcLogin
from pgrouse.web.access.redaction import Redactor
from pgrouse.web.access.security import Authenticate, Authenticator, SecurityMiddleware
from pgrouse.web.access.token_cache import TokenCache
from pgrouse.web.background.alert_delivery import web_delivery_loops
from pgrouse.web.background.http_workers import HttpWorkers
from pgrouse.web.background.long_poll import LongPoll
from pgrouse.web.background.maintenance import WebMaintenance
from pgrouse.web.background.publish_batcher import PublishBatcher
from pgrouse.web.http import probes, static_files
from pgrouse.web.http.head_method import with_head
from pgrouse.web.http.large_body import LargeBodyReader
from pgrouse.web.http.page_compression import with_page_compression
from pgrouse.web.live import live_updates
from pgrouse.web.live.live_updates import LiveUpdates
from pgrouse.web.page import problem_answer
from pgrouse.web.v1.messages.publish_fast_path import with_publish_fast_path


def create_app(settings: Config, authenticate: Authenticate | None = None, *, is_mounted: bool = False) -> FastAPI:
    """Return the app. What its routes work with is in `request.app.state`.

    `settings`, `db` (see DatabasePool), `token_cache`, `authenticator`, `live_updates` (see LiveUpdates), and
    `stopping`: an asyncio.Event that is set when the server is asked to stop, at which streams end.

    Args:
        settings: sections `web`, `database` and `crypto`.
        authenticate: says whom another application knows a caller to be.
        is_mounted: whether another application is around it, which anyone may reach: then none is the local user.
    """
    app = FastAPI(
        title="pgrouse",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=_lifespan,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
    )
    app.state.settings = settings
    app.state.db = DatabasePool(settings)
    app.state.token_cache = TokenCache(app.state.db, settings.web.session_ttl)
    app.state.authenticator = Authenticator(
        settings,
        app.state.token_cache,
        authenticate,
        trusts_loopback=not is_mounted and settings.web.oidc is None,
        redactor=None if settings.web.redact is None else Redactor(find_redact(settings)),
    )
    app.state.oidc = None if settings.web.oidc is None else OidcLogin(settings)
    app.state.large_bodies = LargeBodyReader()
    app.state.publish_batcher = PublishBatcher(app.state.db)
    app.state.cipher = _cipher(settings)
    app.state.http_workers = HttpWorkers(app.state.db)
    app.state.long_poll = LongPoll(app.state.db, settings.web.pool_size)
    app.state.stopping = asyncio.Event()
    app.state.settled = 0
    app.state.live_updates = LiveUpdates(app.state.db, pages.VIEWS, app.state.stopping)
    problem_answer.install(app)
    app.router.routes.append(static_files.ROUTE)
    routers = [probes.router, metrics.router, live_updates.router, *v1.ROUTERS, *pages.ROUTERS]
    for router in routers:
        app.include_router(router, include_in_schema=router in v1.ROUTERS)
    # Those that a path may lead to, whatever the method.
    app.state.routes = [each for router in routers for each in router.routes if isinstance(each, Route)]
    return app


def _cipher(settings: Config) -> Cipher | None:
    return None if settings.crypto.current is None else load_cipher_or_keyless(settings)


def with_security(app: FastAPI) -> ASGIApp:
    """Return the app with the fast path, compressed pages, the security middleware and HEAD: what the server runs."""
    fast = with_page_compression(with_publish_fast_path(app))
    return with_head(SecurityMiddleware(fast, app.state.settings, app.state.authenticator, problem_answer.answer))


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    await app.state.db.open()
    tasks = _start_loops(app)
    try:
        yield
    finally:
        app.state.stopping.set()
        await loop.end(tasks)
        await app.state.live_updates.close()
        await app.state.long_poll.close()
        await app.state.db.close()


def _start_loops(app: FastAPI) -> list[asyncio.Task[None]]:
    """Start what the server does in the background as a daemon does it."""
    settings, db = app.state.settings, app.state.db.connector
    loops: list[loop.Loop] = web_delivery_loops(db, settings) if settings.web.deliver_alerts else []
    if settings.web.run_maintenance:
        tick_s = settings.worker.maintenance_interval.total_seconds()
        loops.append(WebMaintenance(db, tick_s, lambda: app.state.settled))
    tasks = [asyncio.create_task(loop.run(each), name=each.name) for each in loops]
    for task in tasks:
        task.add_done_callback(_log_crash)
    return tasks


def _log_crash(task: asyncio.Task[None]) -> None:
    """Log why a loop ended: pages and API continue without it."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error(events.WEB_FAILED, reason=type(error).__name__, exc_info=error)
