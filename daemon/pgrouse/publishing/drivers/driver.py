"""The interface of a driver. A driver only executes; all drivers get the same statements.

They are coroutines, written once. With a blocking driver they never wait, and `run_sync` runs them to their end.
"""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from pgrouse.database.run_sync import run_sync
from pgrouse.database.schema_name import SchemaName
from pgrouse.publishing.copy_rows import CopyPart
from pgrouse.publishing.statement import Statement

T = TypeVar("T")
Row = tuple[Any, ...]


class Driver:
    """A connection of the caller. The driver never commits, unless the connection is in autocommit mode.

    Attributes:
        is_async: whether its calls must be awaited.
        schema: where the queue is.
    """

    is_async = False
    schema: SchemaName

    async def fetch_row(self, statement: Statement) -> Row | None:
        """Execute a statement, return its first row."""
        raise NotImplementedError

    async def below(self) -> Driver:
        """Return the driver of the library below SQLAlchemy or Django, in the same transaction.

        It is this driver itself where there is none below, or an unknown one.
        """
        return self

    def bulk(self) -> AbstractAsyncContextManager[Driver]:
        """Begin a block that is done as a whole or not at all, within the caller's transaction.

        Return the driver with the best COPY.
        """
        raise NotImplementedError

    async def copy_in(self, part: CopyPart) -> int:
        """Insert many rows, return their number. Uses INSERTs where the driver has no COPY."""
        return sum([(await self.fetch_row(each) or (0,))[0] for each in part.inserts()])

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T | Coroutine[Any, Any, T]:
        """Return the result of a coroutine of this driver, or an awaitable of it."""
        return coroutine if self.is_async else run_sync(coroutine)


def itself(driver: Driver, _schema: SchemaName) -> Driver:
    """Return the driver of a connection that is one: it keeps its own schema."""
    return driver
