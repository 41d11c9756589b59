"""The endpoint: /metrics, /livez and /readyz of one daemon process, by HTTP, on threads of its own.

It answers also while the event loop is blocked; that is what /livez is for. No payload and no connection string is told here, and nothing
can be changed, so that it may be reached by others.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from pgrouse import events
from pgrouse.worker.health import Check, Vitals

log = structlog.get_logger()

# So many requests at once; who comes when all are busy is hung up on, and asks again at the next scrape.
AT_ONCE = 8
REQUEST_S = 5.0
ASK_EVERY_S = 0.5
# The port is taken: by a daemon that is about to end, perhaps.
BIND_AGAIN_S = 5.0


class Server(ThreadingHTTPServer):
    """The HTTP server.

    Args:
        place: host and port.
    """

    daemon_threads = True
    block_on_close = False
    timeout = ASK_EVERY_S

    def __init__(self, place: tuple[str, int], registry: CollectorRegistry, vitals: Vitals) -> None:
        (self.address_family, *_, address), *_ = socket.getaddrinfo(*place, type=socket.SOCK_STREAM)
        self.registry, self.vitals = registry, vitals
        self._places = threading.BoundedSemaphore(AT_ONCE)
        super().__init__(cast("tuple[str, int]", address), Handler)

    def server_bind(self) -> None:
        """Bind, and ask no name server for a name."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, if one is free."""
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be started
            self._places.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and free the thread. The time of a socket is one for each piece that comes: whoever dribbles is cut off at the end of all."""
        cut = threading.Timer(REQUEST_S, _cut, [request])
        cut.daemon = True
        try:
            cut.start()
            super().process_request_thread(request, client_address)
        finally:
            cut.cancel()
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a peer that hung up."""


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: Server
    timeout = REQUEST_S
    server_version = "pgrouse"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer."""
        url = urlsplit(self.path)
        answer = {"/metrics": self._metrics, "/livez": self._live, "/readyz": self._ready}.get(url.path)
        if answer is None:
            self._send(HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", b"/metrics, /livez and /readyz are here\n")
        else:
            answer("complete" in parse_qs(url.query, keep_blank_values=True))

    def do_HEAD(self) -> None:
        """Answer without the body."""
        self.do_GET()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse; of a method that has no function above this would be 501."""
        if code == HTTPStatus.NOT_IMPLEMENTED:
            self._send(HTTPStatus.METHOD_NOT_ALLOWED, "text/plain; charset=utf-8", b"GET or HEAD\n", Allow="GET, HEAD")
        else:
            super().send_error(code, message, explain)

    def _metrics(self, _complete: bool) -> None:
        encode, kind = choose_encoder(self.headers.get("Accept", ""))
        self._send(HTTPStatus.OK, kind, encode(self.server.registry))

    def _live(self, complete: bool) -> None:
        self._tell(self.server.vitals.live(), complete)

    def _ready(self, complete: bool) -> None:
        self._tell(self.server.vitals.ready(), complete)

    def _tell(self, checks: list[Check], complete: bool) -> None:
        failed = [each.name for each in checks if not each.ok]
        status = HTTPStatus.SERVICE_UNAVAILABLE if failed else HTTPStatus.OK
        if complete:
            told = {"ok": not failed, "checks": [{"name": c.name, "ok": c.ok, "said": c.said} for c in checks]}
            self._send(status, "application/json", json.dumps(told).encode())
        else:
            text = f"failed: {', '.join(failed)}\n" if failed else "ok\n"
            self._send(status, "text/plain; charset=utf-8", text.encode())

    def _send(self, status: HTTPStatus, kind: str, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Type": kind, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Log no request: there is one every few seconds."""


class Endpoint(threading.Thread):
    """Serves until stopped, and asks the event loop whether it turns. A port that is taken is no reason not to work: it is said, and tried again.

    Args:
        place: host and port; port 0 takes any.
        registry: makes what to serve; in this thread, so that the daemon's start does not wait for it.
    """

    def __init__(self, place: tuple[str, int], registry: Callable[[], CollectorRegistry], vitals: Vitals) -> None:
        super().__init__(name="metrics", daemon=True)
        self.place, self.registry, self.vitals = place, registry, vitals
        self._stopping = threading.Event()

    def run(self) -> None:
        """Bind, and serve."""
        failures = 0
        while not self._stopping.is_set():
            try:
                server = Server(self.place, self.registry(), self.vitals)
            except OSError as error:
                failures += 1
                if failures == 1:
                    log.warning(events.METRICS_UNAVAILABLE, listen=_shown(self.place), reason=str(error))
                self._stopping.wait(BIND_AGAIN_S)
            else:
                self._serve(server)

    def stop(self) -> None:
        """End within half a second; nobody needs to wait for it."""
        self._stopping.set()

    def _serve(self, server: Server) -> None:
        log.info(events.METRICS_LISTENING, listen=_shown(server.server_address))
        with server:
            while not self._stopping.is_set():
                self.vitals.pulse.ask()
                server.handle_request()


def _cut(request: socket.socket) -> None:
    with suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


def _shown(place: Any) -> str:
    host, port, *_ = place
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
