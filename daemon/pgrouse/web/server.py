"""`pgrouse web`: the application under uvicorn, from the first check to the last connection."""

from __future__ import annotations

import signal
import socket
import threading
from types import FrameType

import psycopg
import uvicorn
from fastapi import FastAPI
from psycopg import errors as pg

from pgrouse.client.call import run as run_call
from pgrouse.client.queries.token import has_tokens
from pgrouse.config.config import Config
from pgrouse.errors import ConfigError, DatabaseUnreachable, ExitCode
from pgrouse.logging import events, log
from pgrouse.logging.event_logger import log as logger
from pgrouse.process import stop_signals, systemd
from pgrouse.web.access import listen_socket
from pgrouse.web.access.database_pool import DatabasePool
from pgrouse.web.application import create_app, with_security
from pgrouse.web.http.http_protocol import MAX_HEADER_BYTES, HttpProtocol
from pgrouse.worker import process_exit

# How long running requests may take after the server is asked to stop; streams end at once.
SHUTDOWN_S = 10
# What the end may take after that.
STOP_MARGIN_S = 5
# Between two requests. Longer than proxies keep their connections: the one that closes is the one that may lose a
# request.
KEEP_ALIVE_S = 75
MAX_CONNECTIONS = 2000


def run(settings: Config) -> int:
    """Serve until asked to stop; return the exit code.

    Raises:
        ConfigError: the address cannot be had, or others can reach it and there is no token and no login by a provider;
            or what the configuration needs is not installed.
    """
    log.setup(settings)
    if settings.web.oidc is None and not listen_socket.is_loopback(settings.web.listen):
        _check_tokens(settings)
    server = WebServer(settings)
    sock = listen_socket.bind(settings.web.listen)
    logger.info(events.WEB_STARTED, url=listen_socket.url(sock))
    # Also before uvicorn takes the first two, and after it.
    stop_signals.deliver_to(lambda which: server.handle_exit(which, None))
    server.run(sockets=[sock])
    logger.info(events.WEB_STOPPED)
    return exit_code(server.stopped_by)


def exit_code(stopped_by: int | None) -> ExitCode:
    """Return how the server ends that this signal has stopped."""
    return ExitCode.INTERRUPTED if stopped_by == signal.SIGINT else ExitCode.OK


def _check_tokens(settings: Config) -> None:
    """Refuse an address that others can reach while there is no token.

    If the database does not answer, no request is accepted anyway.
    """
    try:
        with DatabasePool(settings).connector.connect_blocking("web") as conn:
            is_protected = run_call(conn, has_tokens("good"))
    except (DatabaseUnreachable, pg.OperationalError) as error:
        logger.warning(events.WEB_DATABASE_UNREACHABLE, reason=" ".join(str(error).split()))
        return
    except psycopg.errors.UndefinedTable as error:
        raise ConfigError("the database has no table of tokens: run `pgrouse migrate`") from error
    if not is_protected:
        raise ConfigError(
            f"web.listen {settings.web.listen} can be reached by others, and there is no token: "
            "run `pgrouse token add NAME --role operator` first, set up [web.oidc], or listen on 127.0.0.1"
        )


class WebServer(uvicorn.Server):
    """uvicorn that signals the application when to stop, because its streams never end on their own."""

    def __init__(self, settings: Config) -> None:
        self.application = create_app(settings)
        self.stopped_by: int | None = None
        super().__init__(_uvicorn_config(settings, self.application))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop."""
        self.stopped_by = self.stopped_by or sig
        systemd.notify(STOPPING=1)
        self.application.state.stopping.set()
        self.application.state.long_poll.wake_all()
        # This is not uvicorn's own way: that raises the signal again once everything is closed, and the process would
        # seem killed.
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End: requests first, then what serves them.

        A database that does not answer holds up neither the one nor the other.

        In another thread than the main one the process is not the server's: it goes on, and is not ended.
        """
        if threading.current_thread() is threading.main_thread():
            process_exit.exit_after(SHUTDOWN_S + STOP_MARGIN_S, self._abandon)
        await super().shutdown(sockets)

    def _abandon(self) -> None:
        logger.error(
            events.SHUTDOWN_ABANDONED, in_flight=len(self.server_state.tasks), fix="the database did not answer"
        )
        process_exit.exit_now(exit_code(self.stopped_by), restart=False)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to serve."""
        await super().startup(sockets)
        systemd.notify(READY=1, STATUS="serving")


def _uvicorn_config(settings: Config, app: FastAPI) -> uvicorn.Config:
    return uvicorn.Config(
        with_security(app),
        loop="auto",
        http=HttpProtocol,
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=bool(settings.web.proxies),
        forwarded_allow_ips=settings.web.proxies,
        limit_concurrency=MAX_CONNECTIONS,
        backlog=listen_socket.BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=SHUTDOWN_S,
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
    )
