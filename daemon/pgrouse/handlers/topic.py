"""A topic that is declared beside its handler: `@topic("orders.created", max_attempts=5)`.

The decorator makes a `Topic` of the function. It is called as the function, it publishes messages whose payloads have the type that the handler
takes, and it may have schedules. Nothing else happens when a module is imported: a daemon finds the topics of the modules that
`handlers.modules` names.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, Protocol, TypeVar, Unpack, overload

from pgrouse.handlers.topic_options import ScheduleOptions, TopicOptions
from pgrouse.publishing.new_message import ManyOptions, MessageOptions, NewMessage
from pgrouse.publishing.publish import publish, publish_many

if TYPE_CHECKING:
    from pgrouse.client.async_client import AsyncClient
    from pgrouse.client.client import Client
    from pgrouse.crypto.cipher import Cipher
    from pgrouse.handlers.batch import Item
    from pgrouse.handlers.batch_context import AsyncBatchContext, BatchContext
    from pgrouse.handlers.context import AsyncContext, Context
    from pgrouse.publishing.drivers.connection_types import AnyAsyncConnection, AnyBlockingConnection
    from pgrouse.publishing.published import Published, PublishedMany

Payload = TypeVar("Payload")
P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True)
class Place:
    """A line of code.

    Attributes:
        module: its module.
    """

    module: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class DeclaredSchedule:
    """A schedule of a topic, as `Topic.every` was given it.

    Attributes:
        name: of the schedule.
        values: the keys of its table.
        place: where it was declared.
    """

    name: str
    values: dict[str, Any]
    place: Place


class Topic(Generic[Payload, P, R_co]):
    """A topic and its handler. `topic` makes one.

    Attributes:
        name: of the topic.
        function: the handler.
        options: what the decorator was given.
        place: where it was declared.
        schedules: what `every` has added.
    """

    def __init__(self, name: str, function: Callable[P, R_co], options: dict[str, Any], place: Place) -> None:
        self.name, self.function, self.options, self.place = name, function, options, place
        self.schedules: list[DeclaredSchedule] = []
        self.__name__ = type(function).__name__  # of an object that has no name of its own
        update_wrapper(self, function, updated=())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<topic {self.name}, {self.place}>"

    @overload
    def publish(  # type: ignore[overload-overlap]  # an async connection of SQLAlchemy has all that a blocking one has
        self,
        conn: AnyAsyncConnection | AsyncContext[Any] | AsyncBatchContext[Any] | AsyncClient,
        payload: Payload,
        *,
        cipher: Cipher | None = None,
        **options: Unpack[MessageOptions],
    ) -> Coroutine[Any, Any, Published]: ...

    @overload
    def publish(
        self,
        conn: AnyBlockingConnection | Context[Any] | BatchContext[Any] | Client,
        payload: Payload,
        *,
        cipher: Cipher | None = None,
        **options: Unpack[MessageOptions],
    ) -> Published: ...

    def publish(self, conn: Any, payload: Any, *, cipher: Cipher | None = None, **options: Any) -> Any:
        """Publish one message to the topic, as `pgrouse.publish` does; bytes are its body.

        Args:
            conn: a connection; or the context of a handler, which publishes as `ctx.publish` does; or a client.
            payload: of the message.
            cipher: encrypts it, if the topic is one of its topics. A context does so by itself.
            **options: see the attributes of NewMessage.
        """
        options["body" if isinstance(payload, bytes) else "payload"] = payload
        if cipher is not None:
            options["cipher"] = cipher
        of_its_own = getattr(conn, "publish", None)
        return of_its_own(self.name, **options) if of_its_own else publish(conn, self.name, **options)

    @overload
    def publish_many(  # type: ignore[overload-overlap]  # as of publish
        self,
        conn: AnyAsyncConnection,
        payloads: Iterable[Payload],
        *,
        cipher: Cipher | None = None,
        returning: Literal[False] = False,
        **options: Unpack[ManyOptions],
    ) -> Coroutine[Any, Any, PublishedMany]: ...

    @overload
    def publish_many(  # type: ignore[overload-overlap]  # as of publish
        self,
        conn: AnyAsyncConnection,
        payloads: Iterable[Payload],
        *,
        cipher: Cipher | None = None,
        returning: Literal[True],
        **options: Unpack[ManyOptions],
    ) -> Coroutine[Any, Any, list[Published]]: ...

    @overload
    def publish_many(
        self,
        conn: AnyBlockingConnection,
        payloads: Iterable[Payload],
        *,
        cipher: Cipher | None = None,
        returning: Literal[False] = False,
        **options: Unpack[ManyOptions],
    ) -> PublishedMany: ...

    @overload
    def publish_many(
        self,
        conn: AnyBlockingConnection,
        payloads: Iterable[Payload],
        *,
        cipher: Cipher | None = None,
        returning: Literal[True],
        **options: Unpack[ManyOptions],
    ) -> list[Published]: ...

    def publish_many(
        self,
        conn: Any,
        payloads: Iterable[Payload],
        *,
        cipher: Cipher | None = None,
        returning: bool = False,
        **options: Unpack[ManyOptions],
    ) -> Any:
        """Publish a message for each payload by COPY, as `pgrouse.publish_many` does; all of them with these options."""
        messages: Iterable[NewMessage] = (self.message(payload, **options) for payload in payloads)
        if isinstance(payloads, list | tuple):
            messages = list(messages)  # which is encoded while the server stores it
        many: Any = publish_many  # one call for all kinds of connections and results
        return many(conn, messages, cipher=cipher, returning=returning)

    def message(self, payload: Payload, **options: Unpack[MessageOptions]) -> NewMessage:
        """Return a message of the topic, for a `publish_many` of several topics, or with options of its own."""
        if isinstance(payload, bytes):
            return NewMessage(topic=self.name, body=payload, **options)
        return NewMessage(topic=self.name, payload=payload, **options)

    def every(self, cron: str, payload: Payload | None = None, **options: Unpack[ScheduleOptions]) -> None:
        """Publish a message on a schedule.

        Args:
            cron: when: the five fields of cron, `@daily` and the like, or an interval like "30 seconds".
            payload: of each message; {} unless given.
            **options: name: what the schedule is called, the name of the topic unless given; the others are the keys of `[schedules]`.
        """
        values = {"cron": cron, "topic": self.name, **options}
        name = str(values.pop("name", self.name))
        if payload is not None:
            values["payload"] = payload
        self.schedules.append(DeclaredSchedule(name, values, _caller()))


class TopicDecorator(Protocol):
    """Makes a topic of a handler that takes one payload."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[Payload, Q], R], /
    ) -> Topic[Payload, Concatenate[Payload, Q], R]: ...

    @overload
    def __call__(self, function: Callable[[], R], /) -> Topic[Any, [], R]: ...


class BatchTopicDecorator(Protocol):
    """Makes a topic of a handler that takes a list of payloads, or of items."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[list[Item[Payload]], Q], R], /
    ) -> Topic[Payload, Concatenate[list[Item[Payload]], Q], R]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[list[Payload], Q], R], /
    ) -> Topic[Payload, Concatenate[list[Payload], Q], R]: ...


@overload
def topic(name: str, *, batch_size: int, **options: Unpack[TopicOptions]) -> BatchTopicDecorator: ...


@overload
def topic(name: str, **options: Unpack[TopicOptions]) -> TopicDecorator: ...


def topic(name: str, **options: Any) -> Any:
    """Declare a topic beside its handler, which is found if `handlers.modules` names its module.

    Args:
        name: of the topic.
        **options: the keys of its table in pgrouse.toml, whose values win over these.

    Raises:
        TypeError: there is no name: `@topic` alone would be ignored.
    """
    place = _caller()
    if not isinstance(name, str):
        found = f"@topic above {name.__name__}" if hasattr(name, "__name__") else f"topic({name!r:.100})"
        raise TypeError(f'{found} has no name of a topic: write @topic("orders.created")')

    def declare(function: Callable[P, R]) -> Topic[Any, P, R]:
        if isinstance(function, Topic):
            raise TypeError(f"{function.name} and {name} are declared on one function: a function handles one topic")
        return Topic(name, function, options, place)

    return declare


def _caller() -> Place:
    """Return the line of code that called the function which calls this."""
    frame = sys._getframe(2)  # noqa: SLF001 - as logging does
    return Place(frame.f_globals["__name__"], frame.f_code.co_filename, frame.f_lineno)
