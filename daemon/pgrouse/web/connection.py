"""One connection of the web server: uvicorn's, but nobody may take his time with the beginning of a request.

uvicorn bounds how long it waits for a further request, not for the first one, nor how long a line and headers take: whoever sends nothing,
or one byte now and then, would keep a place from others for ever, and needs no token for that.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.auto import AutoHTTPProtocol

# From the first byte of a request, or from the connect, to the end of its headers.
HEADERS_S = 10.0


class Connection(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """A connection that is hung up on unless its headers come in time."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It begins."""
        super().connection_made(transport)
        self._hurry: asyncio.TimerHandle | None = None
        self._begin()

    def data_received(self, data: bytes) -> None:
        """Take in what comes; of no request that is under way, it is the beginning of the next one."""
        super().data_received(data)
        if self._is_at_work:
            self._end()
        elif self._hurry is None:
            self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self._end()
        super().connection_lost(exc)

    @property
    def _is_at_work(self) -> bool:
        """Whether a request has come, and its answer is not complete."""
        return self.cycle is not None and not self.cycle.response_complete

    def _begin(self) -> None:
        self._hurry = self.loop.call_later(HEADERS_S, self.transport.close)

    def _end(self) -> None:
        if self._hurry is not None:
            self._hurry.cancel()
            self._hurry = None
