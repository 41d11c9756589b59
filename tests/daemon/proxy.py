"""A TCP proxy in front of a server's socket that can lose an answer, and that can stop forwarding silently."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo

# The end of every answer to a statement in autocommit: ready for the next, no transaction is open.
READY = b"Z\x00\x00\x00\x05I"


@dataclass(eq=False)
class Link:
    """One connection through the proxy, with its two directions."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    dead: bool = False
    drops_answers: bool = False
    loses_the_answer: bool = False

    def cut(self) -> None:
        """Close both ends."""
        self.client.transport.abort()
        self.server.transport.abort()


class Proxy:
    """Forwards every connection to `dsn`, in its own thread."""

    def __init__(self, dsn: str) -> None:
        given = conninfo_to_dict(dsn)
        self._upstream = f"{given['host']}/.s.PGSQL.{given['port']}"
        self._dsn = dsn
        self._needle: bytes | None = None
        self._first: bytes | None = None
        self._fatal: bytes | None = None
        self._slow: bytes | None = None
        self._delayed: tuple[Link, bytes] | None = None
        self._links: set[Link] = set()
        self._flows = asyncio.Event()
        self._flows.set()
        self._answers_flow = asyncio.Event()
        self._answers_flow.set()
        self.holds_back = threading.Event()
        self.answer_was_lost = threading.Event()
        self.was_delayed = threading.Event()
        self.was_late = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy")
        self._thread.start()
        self._server: asyncio.Server = self._run(asyncio.start_server(self._serve, "127.0.0.1", 0))

    @property
    def dsn(self) -> str:
        """The connection string through the proxy."""
        return make_conninfo(self._dsn, host="127.0.0.1", port=str(self._server.sockets[0].getsockname()[1]))

    def lose_the_answer_to(self, needle: str, *, after: str | None = None) -> None:
        """Forward the next statement with this text, drop the complete answer, and close the connection.

        after: the next one that follows a statement with this other text.
        """
        self._first = None if after is None else after.encode()
        self._needle = needle.encode()

    def go_dead(self) -> None:
        """Stop forwarding on the existing connections, and keep them open, as half-open connections are."""
        for link in list(self._links):
            link.dead = True

    def die_at(self, needle: str) -> None:
        """Stop forwarding on the connection that next sends a statement with this text; it stays open."""
        self._fatal = needle.encode()

    def delay(self, needle: str) -> None:
        """Hold back the next data with this text and close the client's end: the server has no sign of that."""
        self._slow = needle.encode()

    def deliver(self) -> None:
        """Forward what `delay` held back, and return when the server has answered it or closed the connection."""
        link, data = self._delayed
        self._loop.call_soon_threadsafe(link.server.write, data)
        assert self.was_late.wait(60)

    def swallow_answers(self) -> None:
        """Stop forwarding answers on the existing connections: statements run, and the client does not learn of it."""
        for link in list(self._links):
            link.drops_answers = True

    def cut(self) -> None:
        """Close all existing connections, including stopped ones; new ones are accepted."""
        self._run(self._cut())

    def stall(self) -> None:
        """Hold back all data, on existing and new connections, until `flow`. Nothing is lost."""
        self._loop.call_soon_threadsafe(self._flows.clear)

    def hold_answers(self) -> None:
        """Hold back all answers, until `flow`: statements run, and their clients learn of it late."""
        self._loop.call_soon_threadsafe(self._answers_flow.clear)

    def flow(self) -> None:
        """Forward the data that was held back."""
        self._loop.call_soon_threadsafe(self._flows.set)
        self._loop.call_soon_threadsafe(self._answers_flow.set)

    def hang_up(self) -> None:
        """Close everything, and accept no connection any more."""
        self._run(self._hang_up())

    def close(self) -> None:
        """Close everything and end."""
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            from_server, to_server = await asyncio.open_unix_connection(self._upstream)
        except OSError:
            writer.transport.abort()
            return
        link = Link(writer, to_server)
        self._links.add(link)
        await asyncio.gather(self._ask(link, reader), self._answer(link, from_server))
        self._links.discard(link)
        link.cut()

    async def _ask(self, link: Link, reader: asyncio.StreamReader) -> None:
        while data := await _read(reader):
            if self._fatal and self._fatal in data:
                self._fatal, link.dead = None, True
            if self._first and self._first in data:
                self._first = None
            elif not self._first and self._needle and self._needle in data:
                self._needle, link.loses_the_answer = None, True
            if self._slow and self._slow in data:
                self._slow, link.dead, self._delayed = None, True, (link, data)
                link.client.transport.abort()
                self.was_delayed.set()
            if not self._flows.is_set():
                self.holds_back.set()
            await self._flows.wait()
            if not link.dead:
                link.server.write(data)
        if not link.dead:
            link.cut()

    async def _answer(self, link: Link, reader: asyncio.StreamReader) -> None:
        while data := await _read(reader):
            await self._flows.wait()
            await self._answers_flow.wait()
            if link.loses_the_answer:
                if data.endswith(READY):
                    self.answer_was_lost.set()
                    break
            elif not link.dead and not link.drops_answers:
                link.client.write(data)
            elif self._delayed and self._delayed[0] is link and data.endswith(READY):
                self.was_late.set()
        if self._delayed and self._delayed[0] is link:
            self.was_late.set()
        if not link.dead:
            link.cut()

    async def _cut(self) -> None:
        for link in self._links:
            link.cut()

    async def _hang_up(self) -> None:
        self._server.close()
        await self._cut()

    async def _end(self) -> None:
        self._flows.set()
        self._answers_flow.set()
        await self._hang_up()
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))


async def _read(reader: asyncio.StreamReader) -> bytes:
    """Return the next data; nothing at the end, for whatever reason."""
    try:
        return await reader.read(65536)
    except OSError:
        return b""
