"""The endpoint: /metrics, /livez and /readyz of one daemon process, by HTTP, on its own threads.

It also answers while the event loop is blocked; that is what /livez is for. It shows no payload and no connection
string, and nothing can be changed, so it may be reachable by others.
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

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from pgrouse.logging import events
from pgrouse.logging.event_logger import log
from pgrouse.metrics.health import Health, HealthCheck

# Requests at once; a client that comes when all are busy is disconnected, and asks again at the next scrape.
MAX_REQUESTS = 8
REQUEST_S = 5.0
PING_EVERY_S = 0.5
# The port may be in use by a daemon that is about to end.
BIND_RETRY_S = 5.0


class MetricsServer(ThreadingHTTPServer):
    """The HTTP server.

    Args:
        listen: host and port.
    """

    daemon_threads = True
    block_on_close = False
    timeout = PING_EVERY_S

    def __init__(self, listen: tuple[str, int], registry: CollectorRegistry, health: Health) -> None:
        (self.address_family, *_, address), *_ = socket.getaddrinfo(*listen, type=socket.SOCK_STREAM)
        self.registry, self.health = registry, health
        self._slots = threading.BoundedSemaphore(MAX_REQUESTS)
        super().__init__(cast("tuple[str, int]", address), MetricsRequestHandler)

    def server_bind(self) -> None:
        """Bind, and ask no name server for a name."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread, if one is free."""
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be started
            self._slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and free the thread.

        The socket's time-out counts for each piece, so the timer closes slow clients.
        """
        timer = threading.Timer(REQUEST_S, _close_socket, [request])
        timer.daemon = True
        try:
            timer.start()
            super().process_request_thread(request, client_address)
        finally:
            timer.cancel()
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing if a client hung up."""


class MetricsRequestHandler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: MetricsServer
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
        """Send an error; 405 instead of 501 for a method without a function above."""
        if code == HTTPStatus.NOT_IMPLEMENTED:
            self._send(HTTPStatus.METHOD_NOT_ALLOWED, "text/plain; charset=utf-8", b"GET or HEAD\n", Allow="GET, HEAD")
        else:
            super().send_error(code, message, explain)

    def _metrics(self, _complete: bool) -> None:
        encode, kind = choose_encoder(self.headers.get("Accept", ""))
        self._send(HTTPStatus.OK, kind, encode(self.server.registry))

    def _live(self, complete: bool) -> None:
        self._send_checks(self.server.health.live(), complete)

    def _ready(self, complete: bool) -> None:
        self._send_checks(self.server.health.ready(), complete)

    def _send_checks(self, checks: list[HealthCheck], complete: bool) -> None:
        failed = [each.name for each in checks if not each.ok]
        status = HTTPStatus.SERVICE_UNAVAILABLE if failed else HTTPStatus.OK
        if complete:
            report = {"ok": not failed, "checks": [{"name": c.name, "ok": c.ok, "said": c.detail} for c in checks]}
            self._send(status, "application/json", json.dumps(report).encode())
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


class MetricsEndpoint(threading.Thread):
    """Serves until stopped, and asks the event loop whether it turns.

    If the port is in use it logs that and tries again.

    Args:
        listen: host and port; port 0 takes any.
        registry: makes what to serve; in this thread, so that the daemon's start does not wait for it.
    """

    def __init__(self, listen: tuple[str, int], registry: Callable[[], CollectorRegistry], health: Health) -> None:
        super().__init__(name="metrics", daemon=True)
        self.listen, self.registry, self.health = listen, registry, health
        self._stopping = threading.Event()

    def run(self) -> None:
        """Bind, and serve."""
        failures = 0
        while not self._stopping.is_set():
            try:
                server = MetricsServer(self.listen, self.registry(), self.health)
            except OSError as error:
                failures += 1
                if failures == 1:
                    log.warning(events.METRICS_UNAVAILABLE, listen=_address_text(self.listen), reason=str(error))
                self._stopping.wait(BIND_RETRY_S)
            else:
                self._serve(server)

    def stop(self) -> None:
        """Stop within half a second, without waiting for it."""
        self._stopping.set()

    def _serve(self, server: MetricsServer) -> None:
        log.info(events.METRICS_LISTENING, listen=_address_text(server.server_address))
        with server:
            while not self._stopping.is_set():
                self.health.loop_monitor.ask()
                server.handle_request()


def _close_socket(request: socket.socket) -> None:
    with suppress(OSError):
        request.shutdown(socket.SHUT_RDWR)


def _address_text(listen: Any) -> str:
    host, port, *_ = listen
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
