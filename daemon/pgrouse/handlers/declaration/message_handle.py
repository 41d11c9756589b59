"""A message that was published to a topic in code: its id, and how to get what its handler returns.

`MessageHandle` is what a blocking publish returns, `AsyncMessageHandle` what an awaited one does.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, cast

import psycopg
from pydantic_core import to_json
from typing_extensions import TypeVar

from pgrouse.client.waiting.message_result import MessageResult
from pgrouse.client.waiting.wait_for import wait_for
from pgrouse.client.waiting.waiter import Waiter
from pgrouse.config.duration import AnyDuration
from pgrouse.crypto import envelope
from pgrouse.crypto.envelope import ContentKind
from pgrouse.errors import InvalidResult, MessageNotFound, MessageUnsuccessful
from pgrouse.publishing.published import Published
from pgrouse.values.error_line import error_line

if TYPE_CHECKING:
    from pgrouse.client.async_client import AsyncClient
    from pgrouse.client.client import Client
    from pgrouse.crypto.cipher import Cipher
    from pgrouse.handlers.declaration.topic import Topic
    from pgrouse.handlers.outcome import Defer, Fail, Reject, Retry
    from pgrouse.publishing.drivers.connection_types import AnyAsyncConnection, AnyBlockingConnection

    # What can wait for the end of a message.
    Where: TypeAlias = str | AnyAsyncConnection | AnyBlockingConnection | Client | AsyncClient | Waiter

R = TypeVar("R")
# What the handler returns.
Result_co = TypeVar("Result_co", covariant=True, default=Any)
NOWHERE = (
    "does not know where to wait: a handler published it, or a connection of a pool, which others may use by now; "
    "give result(where=...) a connection, a client or a Waiter"
)


@dataclass(frozen=True, slots=True)
class Publication:
    """How messages were published.

    Attributes:
        topic: by which topic in code.
        name: to which topic.
        where: what can also wait for the end of the messages; None = nothing.
        cipher: encrypted them; None = nothing did.
    """

    topic: Topic[Any, ..., Any]
    name: str
    where: Any
    cipher: Cipher | None


def find_where(publisher: Any) -> Any:
    """Return the connection or client that publishes if it can also wait later; None if it cannot.

    A handler does not wait, and a connection that goes back to its pool belongs to others then.
    """
    if hasattr(publisher, "publish") and not hasattr(publisher, "wait_for"):
        return None
    conn = publisher.connection if isinstance(publisher, psycopg.Cursor | psycopg.AsyncCursor) else publisher
    return None if getattr(conn, "_pool", None) is not None else publisher


class SharedHandle(Published, Generic[Result_co]):
    """The common part of both kinds of handles."""

    _publication: Publication

    @classmethod
    def of(cls, published: Any, publication: Publication) -> Any:
        """Return the handle of a message; what stands in for a message in a test stays as it is."""
        if not isinstance(published, Published):
            return published
        handle = cls(published, published.outcome)
        handle._publication = publication
        return handle

    def __reduce__(self) -> tuple[type[Published], tuple[int, str]]:
        """Copy and pickle it as what it is elsewhere: a Published."""
        return Published, (int(self), self.outcome)

    def _where(self, where: Where | None) -> Any:
        """Return what waits for the end of the message."""
        if self.outcome == "dropped":
            raise MessageNotFound(f"topic {self._publication.name} was full and dropped it: there is no message")
        place = self._publication.where if where is None else where
        if place is None:
            raise ValueError(f"message {self:d} {NOWHERE}")
        return place

    def _wait_for(self, place: Any, timeout: AnyDuration | None) -> Any:
        of_its_own = getattr(place, "wait_for", None)
        return of_its_own(self, timeout) if of_its_own else wait_for(place, self, timeout)

    def _read(self, ended: MessageResult) -> Any:
        if not ended.succeeded:
            why = f": {error_line(ended.error)}" if ended.error else ""
            raise MessageUnsuccessful(f"message {ended.id} ended as {ended.result}{why}", ended)
        topic, cipher = self._publication.topic, self._publication.cipher
        text = to_json(ended.output, inf_nan_mode="constants").decode()
        if cipher is not None:
            text = cipher.decrypt_json(self._publication.name, text, ContentKind.OUTPUT)
        try:
            return topic.returns.read(text)
        except ValueError as error:
            raise InvalidResult(
                f"message {ended.id} of {self._publication.name} {self._why(ended, text, error)}"
            ) from None

    def _why(self, ended: MessageResult, text: str, error: ValueError) -> str:
        """Return why the output of a success does not fit, and what to change."""
        topic = self._publication.topic
        if ended.archived_at is None:
            return "succeeded, and nothing of it is kept: its topic needs archive_success = 'full' or 'no_payload'"
        if envelope.from_json(text) is not None:
            return "has an encrypted output: give publish() the cipher of the topic"
        handler = f"{topic.__name__} ({topic.place})"
        if ended.output is None:
            return (
                f"has no output: {handler} returned None, or a value without a JSON form or of more than 1 MiB, which "
                "the log of its worker names; return a smaller value, or annotate what it returns"
            )
        return (
            f"has an output that is no {topic.returns}: {error}: let {handler} return what its annotation says, or "
            "correct the annotation; here and in the worker it must be the same"
        )


class MessageHandle(SharedHandle[Result_co]):
    """The `Published` of a topic in code: the id of the message, and what its handler returns."""

    def result(
        self: MessageHandle[R | Reject | Fail | Retry | Defer],
        timeout: AnyDuration | None = None,
        *,
        where: Where | None = None,
    ) -> R:
        """Wait until the message has ended, and return what its handler returned, in the type of its annotation.

        Args:
            timeout: how long to wait at most: a timedelta, seconds, or "5s"; None = as long as it takes.
            where: a connection or connection string as `wait_for` takes it, a Client or a Waiter; what published the
                message, unless given.

        Raises:
            MessageUnsuccessful: it ended without success.
            InvalidResult: the output does not fit the annotation, was dropped, or is not kept.
            TimeoutError, MessageNotFound, ResultForbidden: as `wait_for`.
            ValueError: there is no place to wait, or the transaction of the connection is not over, as of `wait_for`.
            RuntimeError: an event loop runs in this thread, which would stand still.
            TypeError: `where` cannot wait, or is async; or the annotation of the handler cannot be read.
        """
        ended = self._wait_for(self._where(where), timeout)
        if isinstance(ended, Coroutine):
            ended.close()
            raise TypeError(
                f"message {self:d} was published without an await: result(where=...) must not be async either"
            )
        return cast("R", self._read(ended))


class AsyncMessageHandle(SharedHandle[Result_co]):
    """The same of a publish that was awaited."""

    async def result(
        self: AsyncMessageHandle[R | Reject | Fail | Retry | Defer],
        timeout: AnyDuration | None = None,  # noqa: ASYNC109
        *,
        where: Where | None = None,
    ) -> R:
        """Wait until the message has ended, and return what its handler returned, as `MessageHandle.result` does.

        Args:
            timeout: how long to wait at most.
            where: an async connection, an AsyncClient or a Waiter; what published the message, unless given.
        """
        place = self._where(where)
        ended = place.ended(self, timeout) if isinstance(place, Waiter) else self._wait_for(place, timeout)
        return cast("R", self._read(await ended))
