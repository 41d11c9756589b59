"""Receivers of alerts in tests: an HTTP server and a mail server that record requests and answer as configured."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.server.deadline import eventually


def reserved(port: int = 0) -> socket.socket:
    """Reserve an address of this machine.

    No other process gets it by chance, and until a test listens there, connections are refused.

    Raises:
        OSError: the port is in use.
    """
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        kept.bind(("127.0.0.1", port))
    except OSError:
        kept.close()
        raise
    return kept


@dataclass(frozen=True)
class Request:
    """One POST."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """Its body."""
        return json.loads(self.body)

    @property
    def id(self) -> str:
        """The id by which receivers deduplicate."""
        return self.headers["webhook-id"]


class Receiver:
    """An HTTP server. It answers 204, unless `answer` sets another answer for a request."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.answer: Callable[[Request], tuple[int, dict[str, str], str]] = lambda _: (204, {}, "")
        # Closed: requests are read, and their answers wait.
        self.gate = threading.Event()
        self.gate.set()
        self.scheme = "http"
        self._kept = reserved()
        self._start(self._kept.getsockname()[1])

    def _start(self, port: int) -> None:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver._take(self)

            def log_message(self, *_: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:
                """Log nothing about clients that died."""

        self.server = Server(("127.0.0.1", port), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def _take(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        request = Request(handler.path, {name.lower(): value for name, value in handler.headers.items()}, body)
        self.requests.append(request)
        self.gate.wait(60)
        status, headers, text = self.answer(request)
        handler.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(text.encode()))}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(text.encode())

    def url(self, path: str = "/hook") -> str:
        """Return one of its addresses."""
        return f"{self.scheme}://127.0.0.1:{self.port}{path}"

    def speak_tls(self, certificate: Path, key: Path) -> None:
        """Use HTTPS from now on."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        # Each handshake runs in its own thread, at the first read.
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.scheme = "https"

    def wait_for(self, count: int, within_s: float = 30) -> list[Request]:
        """Wait for this number of requests and return all."""
        return list(eventually(lambda: len(self.requests) >= count and self.requests, within_s))

    def refuse(self, status: int, text: str = "", **headers: str) -> None:
        """Answer everything with this status from now on."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answer = lambda _: (status, given, text)

    def accept(self) -> None:
        """Answer 204 again."""
        self.answer = lambda _: (204, {}, "")

    def stop(self) -> None:
        """Stop serving."""
        self.go_away()
        self._kept.close()

    def go_away(self) -> None:
        """Stop serving for a while; the address stays reserved."""
        self.gate.set()
        self.server.shutdown()
        self.server.server_close()

    def start_again(self) -> None:
        """Serve again, at the same address."""
        self._start(self.port)


class Mailbox:
    """A mail server without encryption."""

    def __init__(self) -> None:
        from aiosmtpd.controller import Controller  # noqa: PLC0415

        self.mails: list[EmailMessage] = []
        self.passwords: list[str] = []
        self._kept = reserved()
        self.port = self._kept.getsockname()[1]
        self.controller = Controller(
            self, hostname="127.0.0.1", port=self.port, authenticator=self._log_in, auth_require_tls=False
        )
        self.controller.start()

    def _log_in(self, _server: Any, _session: Any, _envelope: Any, _mechanism: str, given: Any) -> Any:
        from aiosmtpd.smtp import AuthResult  # noqa: PLC0415

        self.passwords.append(given.password.decode())
        return AuthResult(success=True)

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd calls it so
        """Receive a mail."""
        mail = message_from_bytes(envelope.content, policy=policy.default)
        assert isinstance(mail, EmailMessage)
        self.mails.append(mail)
        return "250 OK"

    def stop(self) -> None:
        """Stop serving."""
        self.controller.stop()
        self._kept.close()
