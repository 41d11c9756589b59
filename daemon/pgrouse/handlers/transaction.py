"""The block of `ctx.transaction()`: a handler's own SQL and the completion of its message, in one transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from psycopg import AsyncConnection, Connection

from pgrouse.client.call import Call, run, run_async
from pgrouse.client.calls.run import set_progress
from pgrouse.client.calls.settle import complete
from pgrouse.client.message import Message, claim_refs
from pgrouse.errors import LockLost
from pgrouse.handlers.outcome import encode_output
from pgrouse.handlers.publish_tracker import tracker_of

if TYPE_CHECKING:
    from pgrouse.handlers.context import Context
    from pgrouse.worker.daemon_runtime import DaemonRuntime


class Transaction:
    """`async with` gives an async connection, `with` (in sync handlers) a blocking one."""

    def __init__(self, context: Context, message: Message, runtime: DaemonRuntime) -> None:
        self._context, self._message, self._runtime = context, message, runtime
        self._async: AbstractAsyncContextManager[AsyncConnection]
        self._blocking: AbstractContextManager[Connection]

    async def __aenter__(self) -> AsyncConnection:
        self._async = self._open_async()
        return await self._async.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._async.__aexit__(kind, error, trace)

    def __enter__(self) -> Connection:
        self._blocking = self._open_blocking()
        return self._blocking.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._blocking.__exit__(kind, error, trace)

    @asynccontextmanager
    async def _open_async(self) -> AsyncIterator[AsyncConnection]:
        self._check_not_completed()
        async with self._runtime.pool.connection() as conn, conn.transaction():
            with self._open(conn):
                yield conn
            self._check_not_completed()
            if (tracker := tracker_of(self._context)) is not None:
                tracker.raise_if_not_awaited()
            if (last := self._runtime.last_progress(self._message)) is not None:
                await run_async(conn, set_progress(*claim_refs([self._message]), [last]))
            self._check(await run_async(conn, self._completion()))
        self._committed()

    @contextmanager
    def _open_blocking(self) -> Iterator[Connection]:
        self._check_not_completed()
        with self._runtime.blocking_pool.connection() as conn, conn.transaction():
            with self._open(conn):
                yield conn
            self._check_not_completed()
            if (last := self._runtime.last_progress(self._message)) is not None:
                run(conn, set_progress(*claim_refs([self._message]), [last]))
            self._check(run(conn, self._completion()))
        self._committed()

    @contextmanager
    def _open(self, conn: AsyncConnection | Connection) -> Iterator[None]:
        """While the block runs its steps are kept with it."""
        self._context.connection = conn
        try:
            yield
        finally:
            self._context.connection = None

    def _completion(self) -> Call[list[int]]:
        output = self._context.output
        kept = None if output is None else self._runtime.encrypt_output(self._message, encode_output(output))
        return complete(*claim_refs([self._message]), [kept])

    def _check(self, lost: list[int]) -> None:
        if lost:
            raise LockLost(
                f"message {self._message.id} is not this worker's any more: everything in the transaction was rolled back"
            )

    def _committed(self) -> None:
        self._context.completed = True
        self._runtime.completed(self._message)

    def _check_not_completed(self) -> None:
        if self._context.action is not None:
            raise RuntimeError(
                f"message {self._message.id} has an outcome by ctx.ack(), ctx.nack() or ctx.reject(): "
                "use one of them or ctx.transaction(), not both"
            )
        if self._context.completed:
            raise RuntimeError(
                f"message {self._message.id} is completed already: do all its writes in one ctx.transaction()"
            )
