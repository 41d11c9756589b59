"""What operators do, from coroutines: the methods of `Client`, each to be awaited.

    async with AsyncClient("postgresql://…") as queue:
        await queue.pause("mail.send", reason="the relay is down")

There is one implementation, the blocking one, which runs here in a thread: docs/decisions/0018-one-client-and-a-thread.md.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any

import psycopg

from pgrouse import search_path
from pgrouse.client.client import Client
from pgrouse.client.wait_for import MessageResult, wait_for
from pgrouse.config.duration import AnyDuration

# How long a cancelled call waits for the server to learn of it.
CANCEL_S = 5.0


class AsyncClient:
    """The queue of one database, for those who operate it, as `Client`.

    Calls are made one at a time, in the order in which they were begun. One that is cancelled is cancelled on the server too.

    Args:
        dsn: a connection string, for a connection of its own in autocommit mode. It is made when the block is entered.
    """

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pgrouse client")
        self._client: Client
        # Held while a cancellation is sent, so that no call begins which it could meet.
        self._turn = threading.Lock()

    async def __aenter__(self) -> AsyncClient:
        self._client = await asyncio.get_running_loop().run_in_executor(self._thread, Client, self._dsn)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._in_turn, self._client.close)
        self._thread.shutdown(wait=False)

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        """Return a method of `Client`, to be awaited."""
        if name.startswith("_") or not callable(getattr(Client, name, None)) or name == "close":
            raise AttributeError(f"AsyncClient has no method {name!r}: it has those of Client, and closes itself")
        return partial(self._call, name)

    async def wait_for(self, message_id: int, timeout: AnyDuration | None = None) -> MessageResult:  # noqa: ASYNC109 - as of Client
        """Wait until a message has ended, and return how; on a connection of its own, so that other calls go on meanwhile."""
        async with await search_path.fix_async(
            await psycopg.AsyncConnection.connect(self._dsn, autocommit=True)
        ) as conn:
            return await wait_for(conn, message_id, timeout)

    async def _call(self, name: str, *args: Any, **named: Any) -> Any:
        method = partial(getattr(self._client, name), *args, **named)
        going = self._thread.submit(self._in_turn, method)
        done = asyncio.wrap_future(going)
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            done.add_done_callback(_ignore_result)
            # One that still waits for its turn is just left out.
            if not going.cancel() and not going.done():
                await asyncio.to_thread(self._cancel, going)
            raise

    def _in_turn(self, method: Callable[[], Any]) -> Any:
        with self._turn:
            pass
        return method()

    def _cancel(self, going: Future[Any]) -> None:
        """Cancel on the server what it does for this call, unless the call has ended meanwhile: then it does something for another."""
        with self._turn, suppress(psycopg.Error):
            if not going.done():
                self._client.conn.cancel_safe(timeout=CANCEL_S)


def _ignore_result(done: asyncio.Future[Any]) -> None:
    """Ignore the result of a cancelled call."""
    if not done.cancelled():
        done.exception()
