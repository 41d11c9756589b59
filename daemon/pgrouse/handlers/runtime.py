"""What handlers need from the place where they run: a daemon, its child process, or a test."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import timedelta
from typing import Any, Protocol

from psycopg import AsyncConnection, Connection

from pgrouse.client.calls.event import SavedEvent
from pgrouse.client.message import Message
from pgrouse.handlers.encryption import Encryption


class AsyncPool(Protocol):
    """Lends connections to async handlers."""

    def connection(self) -> AbstractAsyncContextManager[AsyncConnection[Any]]:
        """Lend a connection."""


class BlockingPool(Protocol):
    """Lends connections to handlers in threads."""

    def connection(self) -> AbstractContextManager[Connection[Any]]:
        """Lend a connection."""


class HandlerRuntime(Protocol):
    """The runtime of handlers. Handlers in threads also call it."""

    @property
    def stopping(self) -> bool:
        """Whether the worker is shutting down."""

    @property
    def resources(self) -> Any:
        """What the lifespan yielded; None without one."""

    @property
    def encryption(self) -> Encryption:
        """The encryption of the data that handlers store."""

    @property
    def pool(self) -> AsyncPool:
        """The connections of async handlers.

        Raises:
            RuntimeError: there are none here; the text says what to do.
        """

    @property
    def blocking_pool(self) -> BlockingPool:
        """The connections of handlers in threads.

        Raises:
            RuntimeError: there are none here; the text says what to do.
        """

    @property
    def given_events(self) -> Sequence[SavedEvent] | None:
        """The events of the message, where they were read before; None = the database knows them."""

    @property
    def web_url(self) -> str | None:
        """The address of the web server; None if it is not known."""

    def holds(self, message: Message) -> bool:
        """Whether the message is still this worker's: in flight under this claim, and not cancelled."""

    def cancelled(self, message: Message) -> bool:
        """Whether the message was cancelled."""

    def note_progress(self, message: Message, text: str) -> None:
        """Remember the progress of a message that is in flight."""

    def last_progress(self, message: Message) -> str | None:
        """Return the last progress of a message."""

    def extend(self, message: Message, lock_duration: timedelta) -> Awaitable[None]:
        """Extend the message's lock. On the event loop the caller awaits the result; in a thread this call waits."""

    def mark_completing(self, *messages: Message) -> None:
        """The handler is about to complete these messages in its own transaction.

        From now on only the database knows how they end.
        """

    def mark_not_completed(self, *messages: Message) -> None:
        """The server refused to commit that transaction: the messages are in flight as before."""

    def completed(self, *messages: Message) -> None:
        """The transaction that completed these messages is committed: nothing remains to settle."""
