"""One connection of the web server: uvicorn's, with a time limit and a size limit for the headers of a request.

uvicorn bounds how long it waits for a further request, not for the first one, nor how long a line and headers take: a
client that sends nothing, or one byte now and then, would occupy a connection without end, and needs no token for that.
Nor does httptools, the parser that it prefers, bound how many bytes a line and headers have, or what follows a body in
parts; h11 does, see `MAX_HEADER_BYTES`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from uvicorn.protocols.http.auto import AutoHTTPProtocol

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol as Protocol
else:
    Protocol = object

# From the first byte of a request, or from the connect, to the end of its headers.
HEADERS_S = 10.0
# The maximum size of the line and headers of a request. A somewhat larger request is found only with its next part.
MAX_HEADER_BYTES = 65_536
CHUNK_BYTES = 16_384
TOO_LARGE = (
    b'{"title":"Headers too large","status":431,"code":"headers_too_large","detail":"the headers may have 65,536 '
    b'bytes"}'
)
NO_UPGRADE = (
    b'{"title":"Bad request","status":400,"code":"bad_request","detail":"there is no upgrade here: '
    b'send a body by HTTP/1.1"}'
)


def _refusal(status: bytes, problem: bytes) -> bytes:
    return (
        b"HTTP/1.1 %s\r\ncontent-type: application/problem+json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s"
        % (status, len(problem), problem)
    )


class BoundedProtocol(Protocol):
    """What is added to uvicorn's protocol of either parser."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It begins."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self._header_timer: asyncio.TimerHandle | None = None
        self._start_header_timer()

    def data_received(self, data: bytes) -> None:
        """Take in what comes; of no request that is under way, it is the beginning of the next one."""
        super().data_received(data)
        if self._is_responding:
            self._stop_header_timer()
        elif self._header_timer is None and self._is_in_headers:
            self._start_header_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self._stop_header_timer()
        super().connection_lost(exc)

    @property
    def _is_responding(self) -> bool:
        """Whether a request has come, and its answer is not complete."""
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def _is_in_headers(self) -> bool:
        """Whether a request has begun whose headers are not complete; not so the rest of one that was answered."""
        return bool(self.conn.trailing_data[0])  # type: ignore[attr-defined] # as h11 keeps what it has not read

    def _start_header_timer(self) -> None:
        self._header_timer = self.loop.call_later(HEADERS_S, self.transport.close)

    def _stop_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None


class BoundedHttpToolsProtocol(BoundedProtocol):
    """A further limit for httptools, which buffers bytes that are not yet complete headers or a part of a body.

    Of a request that asks for another protocol it reads no body: what follows the headers would be taken for further
    requests.
    """

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It begins."""
        super().connection_made(transport)
        self._kept_bytes, self._has_headers, self._is_last = 0, True, False

    def data_received(self, data: bytes) -> None:
        """Take in what comes, part by part."""
        for at in range(0, len(data), CHUNK_BYTES):
            if self.transport.is_closing() or self._is_last:
                return
            part = data[at : at + CHUNK_BYTES]
            self._kept_bytes += len(part)
            super().data_received(part)
            if self._kept_bytes > MAX_HEADER_BYTES:
                self._refuse(b"431 Request Header Fields Too Large", TOO_LARGE)

    @property
    def _is_in_headers(self) -> bool:
        return not self._has_headers

    def _refuse(self, status: bytes, problem: bytes) -> None:
        if not self._is_responding:
            self.transport.write(_refusal(status, problem))
        self.transport.close()

    def on_message_begin(self) -> None:
        """A request begins."""
        self._has_headers = False
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header was read.

        What follows a body in parts looks like one, and is none: it may say nothing of who asks.
        """
        if not self._has_headers:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Its headers are there."""
        self._kept_bytes, self._has_headers = 0, True
        self._is_last = self.parser.should_upgrade()
        if self._is_last and self._has_body:
            self._refuse(b"400 Bad Request", NO_UPGRADE)
            return
        super().on_headers_complete()
        self.cycle.keep_alive = self.cycle.keep_alive and not self._is_last

    @property
    def _has_body(self) -> bool:
        """Whether the headers announce one."""
        return any(
            name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
            for name, value in self.headers
        )

    def on_body(self, body: bytes) -> None:
        """A part of its body is there."""
        self._kept_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """All of it is there."""
        self._kept_bytes = 0
        if not self.transport.is_closing():
            super().on_message_complete()


def bounded_protocol(parser: type) -> type:
    """Return the protocol of one of uvicorn's parsers with bounds."""
    kind = BoundedHttpToolsProtocol if hasattr(parser, "on_headers_complete") else BoundedProtocol
    return type("Connection", (kind, parser), {})


HttpProtocol = bounded_protocol(AutoHTTPProtocol)
