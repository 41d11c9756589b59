"""A web server for tests: in a thread, with its own port and database."""

from __future__ import annotations

import signal
import threading
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import httpx

from pgrouse.config.config import load
from pgrouse.database import schema_name
from pgrouse.web.access import listen_socket, tokens
from pgrouse.web.server import WebServer
from tests.api import described
from tests.server.deadline import eventually
from tests.server.postgres import Database


class Site:
    """One web server.

    Args:
        database: the database that it serves.
        dsn: how it connects, if not directly.
        tick: how often it runs the maintenance; None = never, so that a test does.
        **web: settings of the section.
    """

    def __init__(
        self, database: Database, dsn: str | None = None, maintenance_interval: str | None = None, **web: Any
    ) -> None:
        self.database = database
        # A busy machine may take longer than the default timeout of a statement.
        given = {"listen": "127.0.0.1:0", "statement_timeout": "60s", **web}
        settings = load(
            environ={},
            overrides={
                "database": {"dsn": dsn or database.dsn, "schema": schema_name.current().name},
                "worker": {"maintenance_interval": maintenance_interval or "5s"},
                "web": {"run_maintenance": maintenance_interval is not None, **given},
            },
        )
        sock = listen_socket.bind(settings.web.listen)
        self.url = listen_socket.url(sock)
        self.server = WebServer(settings)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [sock]}, daemon=True)
        self.thread.start()
        eventually(lambda: self.server.started)

    @property
    def app(self) -> Any:
        return self.server.application

    def stop(self) -> None:
        self.server.handle_exit(signal.SIGTERM, None)
        self.thread.join(timeout=60)
        assert not self.thread.is_alive()

    def token(
        self, *roles: str, topics: tuple[str, ...] = ("*",), name: str | None = None, expires: timedelta | None = None
    ) -> str:
        """Create a token, known at once."""
        made = tokens.new()
        with self.database.connect() as conn:
            conn.execute(
                "SELECT messages.add_token(%s, %s, %s, %s, %s)",
                [name or f"t{made[4:12]}x", tokens.digest(made), list(roles), list(topics), expires],
            )
        return made

    def client(self, token: str | None = None, headers: Mapping[str, str] | None = None) -> httpx.Client:
        """Return a client with these headers that checks answers; the caller closes it, or the end of the test does."""
        given = {"Authorization": f"Bearer {token}"} if token else {}
        hooks = {"response": [described.check]}
        return httpx.Client(base_url=self.url, headers={**given, **(headers or {})}, timeout=90, event_hooks=hooks)


def code(answer: httpx.Response) -> str:
    """Return the code of a problem."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    problem = answer.json()
    assert problem["status"] == answer.status_code
    return str(problem["code"])
