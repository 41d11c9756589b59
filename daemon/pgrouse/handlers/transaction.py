"""The block of `ctx.transaction()`: a handler's own SQL and the completion of its message, in one transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from psycopg import AsyncConnection, Connection

from pgrouse.errors import LockLost
from pgrouse.handlers.outcome import as_json
from pgrouse.handlers.publish_tracker import promised_by
from pgrouse.client.worker_client import complete_statement, progress_statement

if TYPE_CHECKING:
    from pgrouse.handlers.context import Context
    from pgrouse.client.message import Message
    from pgrouse.worker.daemon_runtime import Scene


class Transaction:
    """`async with` gives an async connection, `with` (in sync handlers) a blocking one."""

    def __init__(self, context: Context, message: Message, scene: Scene) -> None:
        self._context, self._message, self._scene = context, message, scene
        self._async: AbstractAsyncContextManager[AsyncConnection]
        self._blocking: AbstractContextManager[Connection]

    async def __aenter__(self) -> AsyncConnection:
        self._async = self._on_the_loop()
        return await self._async.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._async.__aexit__(kind, error, trace)

    def __enter__(self) -> Connection:
        self._blocking = self._in_a_thread()
        return self._blocking.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._blocking.__exit__(kind, error, trace)

    @asynccontextmanager
    async def _on_the_loop(self) -> AsyncIterator[AsyncConnection]:
        self._refuse_a_second()
        async with self._scene.pool.connection() as conn, conn.transaction():
            with self._open(conn):
                yield conn
            self._refuse_a_second()
            if (promised := promised_by(self._context)) is not None:
                promised.refuse_forgotten()
            if (last := self._scene.last_progress(self._message)) is not None:
                await conn.execute(*progress_statement([(self._message, last)]))
            cursor = await conn.execute(*self._completion())
            self._check(await cursor.fetchone())
        self._committed()

    @contextmanager
    def _in_a_thread(self) -> Iterator[Connection]:
        self._refuse_a_second()
        with self._scene.blocking_pool.connection() as conn, conn.transaction():
            with self._open(conn):
                yield conn
            self._refuse_a_second()
            if (last := self._scene.last_progress(self._message)) is not None:
                conn.execute(*progress_statement([(self._message, last)]))
            self._check(conn.execute(*self._completion()).fetchone())
        self._committed()

    @contextmanager
    def _open(self, conn: AsyncConnection | Connection) -> Iterator[None]:
        """While the block runs its steps are kept with it."""
        self._context.connection = conn
        try:
            yield
        finally:
            self._context.connection = None

    def _completion(self) -> tuple[bytes, list[object]]:
        output = self._context.output
        kept = None if output is None else self._scene.output(self._message, as_json(output))
        return complete_statement([self._message], [kept])

    def _check(self, row: tuple[list[int]] | None) -> None:
        if row != ([],):
            raise LockLost(
                f"message {self._message.id} is not this worker's any more: everything in the transaction was rolled back"
            )

    def _committed(self) -> None:
        self._context.completed = True
        self._scene.completed(self._message)

    def _refuse_a_second(self) -> None:
        if self._context.action is not None:
            raise RuntimeError(
                f"of message {self._message.id} ctx.ack(), ctx.nack() or ctx.reject() said how it ends: "
                "use one of them or ctx.transaction(), not both"
            )
        if self._context.completed:
            raise RuntimeError(
                f"message {self._message.id} is completed already: do all its writes in one ctx.transaction()"
            )
