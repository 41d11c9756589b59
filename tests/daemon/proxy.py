"""A TCP proxy in front of a server's socket that can lose an answer, and that can die without anyone noticing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo


class Proxy:
    """Forwards every connection made to `dsn`; runs in a thread of its own."""

    def __init__(self, dsn: str) -> None:
        given = conninfo_to_dict(dsn)
        self._upstream = f"{given['host']}/.s.PGSQL.{given['port']}"
        self._dsn = dsn
        self._needle: bytes | None = None
        self._dead: set[asyncio.StreamWriter] = set()
        self._open: set[asyncio.StreamWriter] = set()
        self.answer_was_lost = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy")
        self._thread.start()
        self._server: asyncio.Server = self._run(asyncio.start_server(self._serve, "127.0.0.1", 0))

    @property
    def dsn(self) -> str:
        """The connection string of the way through the proxy."""
        return make_conninfo(self._dsn, host="127.0.0.1", port=str(self._server.sockets[0].getsockname()[1]))

    def lose_the_answer_with(self, needle: bytes) -> None:
        """Swallow the next answer that has these bytes in it, and cut its connection."""
        self._needle = needle

    def go_dead(self) -> None:
        """From now on forward nothing on the connections there are, and keep them open: what a half-open connection looks like."""
        self._loop.call_soon_threadsafe(lambda: self._dead.update(self._open))

    def close(self) -> None:
        """Cut everything and end."""
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_unix_connection(self._upstream)
        self._open |= {writer, to_server}
        with suppress(OSError):
            async with asyncio.TaskGroup() as group:
                group.create_task(self._forward(reader, to_server, answers=False))
                group.create_task(self._forward(from_server, writer, answers=True))
        for each in (writer, to_server):
            self._open.discard(each)
            each.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool) -> None:
        while data := await reader.read(65536):
            if answers and self._needle and self._needle in data:
                self._needle = None
                self.answer_was_lost.set()
                break
            if writer not in self._dead:
                writer.write(data)
                await writer.drain()
        if writer not in self._dead:
            raise ConnectionResetError  # ends the other direction too

    async def _end(self) -> None:
        self._server.close()
        for each in self._open:
            each.transport.abort()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
