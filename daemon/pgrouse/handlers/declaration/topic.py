"""A topic that is declared at its handler: `@topic("orders.created", max_attempts=5)`.

The decorator turns the function into a `Topic`. It can be called like the function, it publishes messages whose
payloads have the type that the handler takes, and it may have schedules. Importing a module does nothing else: a daemon
finds the topics of the modules that `handlers.modules` names.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, update_wrapper
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, Protocol, Unpack, overload

from typing_extensions import TypeVar

from pgrouse.errors import InvalidMessage
from pgrouse.handlers.declaration.message_handle import (
    AsyncMessageHandle,
    MessageHandle,
    Publication,
    SharedHandle,
    find_where,
)
from pgrouse.handlers.declaration.topic_options import ScheduleOptions, TopicOptions, check_durations
from pgrouse.handlers.return_type import ReturnType, find_return_type
from pgrouse.publishing.new_message import MessageOptions, NewMessage
from pgrouse.publishing.publish import publish, publish_many
from pgrouse.publishing.tracked_coroutine import TrackedCoroutine
from pgrouse.values.topic_pattern import is_pattern, matches

if TYPE_CHECKING:
    from pgrouse.client.async_client import AsyncClient
    from pgrouse.client.client import Client
    from pgrouse.crypto.cipher import Cipher
    from pgrouse.handlers.batch.batch import Item
    from pgrouse.handlers.batch.batch_context import AsyncBatchContext, BatchContext
    from pgrouse.handlers.context import AsyncContext, Context
    from pgrouse.publishing.drivers.connection_types import AnyAsyncConnection, AnyBlockingConnection
    from pgrouse.publishing.published import PublishedMany

Payload = TypeVar("Payload")
P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
# What `publish` gets as the result: R_co, awaited; of a batch handler, an element of it.
Output_co = TypeVar("Output_co", covariant=True, default=Any)
# A coroutine of what a handler returns.
Awaited = Coroutine[Any, Any, R]


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
    """A schedule of a topic, with the arguments of `Topic.every`.

    Attributes:
        name: the name of the schedule.
        values: the keys of its table.
        place: where it was declared.
    """

    name: str
    values: dict[str, Any]
    place: Place


class OwnPublishOptions(MessageOptions, total=False):
    """The keyword arguments with which a topic publishes.

    Attributes:
        topic: the topic of the message, needed if this is a pattern of topics.
        cipher: encrypts it, if the topic is one of the cipher's topics. A context needs no cipher here.
    """

    topic: str | None
    cipher: Cipher | None


class Topic(Generic[Payload, P, R_co, Output_co]):
    """A topic and its handler. The decorator `topic` creates it.

    Attributes:
        name: the name of the topic, or the pattern of its topics.
        function: the handler.
        options: the options of the decorator.
        place: where it was declared.
        schedules: the schedules that `every` has added.
    """

    def __init__(self, name: str, function: Callable[P, R_co], options: dict[str, Any], place: Place) -> None:
        self.name, self.function, self.options, self.place = name, function, options, place
        self.schedules: list[DeclaredSchedule] = []
        self.__name__ = type(function).__name__  # the type's name, for an object without a name
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
        **options: Unpack[OwnPublishOptions],
    ) -> Awaited[AsyncMessageHandle[Output_co]]: ...

    @overload
    def publish(
        self,
        conn: AnyBlockingConnection | Context[Any] | BatchContext[Any] | Client,
        payload: Payload,
        **options: Unpack[OwnPublishOptions],
    ) -> MessageHandle[Output_co]: ...

    def publish(
        self, conn: Any, payload: Any, *, topic: str | None = None, cipher: Cipher | None = None, **options: Any
    ) -> Any:
        """Publish one message to the topic, as `pgrouse.publish` does, and return its id and a way to its result.

        If the payload is bytes, they are the message's body.

        Args:
            conn: a connection; or the context of a handler, which publishes as `ctx.publish` does; or a client.
            payload: the payload of the message.
            topic: the topic of the message, needed if this is a pattern of topics.
            cipher: encrypts it, if the topic is one of the cipher's topics. A context needs no cipher here.
            **options: see the attributes of NewMessage.
        """
        options["body" if isinstance(payload, bytes) else "payload"] = payload
        if cipher is not None:
            options["cipher"] = cipher
        of_its_own = getattr(conn, "publish", None)
        name = self._name_for(topic)
        published = of_its_own(name, **options) if of_its_own else publish(conn, name, **options)
        return self._with_handles(published, Publication(self, name, find_where(conn), cipher))

    @overload
    def publish_many(  # type: ignore[overload-overlap]  # as of publish
        self,
        conn: AnyAsyncConnection,
        payloads: Iterable[Payload],
        *,
        returning: Literal[False] = False,
        **options: Unpack[OwnPublishOptions],
    ) -> Awaited[PublishedMany]: ...

    @overload
    def publish_many(  # type: ignore[overload-overlap]  # as of publish
        self,
        conn: AnyAsyncConnection,
        payloads: Iterable[Payload],
        *,
        returning: Literal[True],
        **options: Unpack[OwnPublishOptions],
    ) -> Awaited[list[AsyncMessageHandle[Output_co]]]: ...

    @overload
    def publish_many(
        self,
        conn: AnyBlockingConnection,
        payloads: Iterable[Payload],
        *,
        returning: Literal[False] = False,
        **options: Unpack[OwnPublishOptions],
    ) -> PublishedMany: ...

    @overload
    def publish_many(
        self,
        conn: AnyBlockingConnection,
        payloads: Iterable[Payload],
        *,
        returning: Literal[True],
        **options: Unpack[OwnPublishOptions],
    ) -> list[MessageHandle[Output_co]]: ...

    def publish_many(
        self,
        conn: Any,
        payloads: Iterable[Payload],
        *,
        topic: str | None = None,
        cipher: Cipher | None = None,
        returning: bool = False,
        **options: Unpack[MessageOptions],
    ) -> Any:
        """Publish a message for each payload by COPY, as `pgrouse.publish_many` does.

        These options apply to all of them.
        """
        name = self._name_for(topic)
        messages: Iterable[NewMessage] = (self.message(payload, topic=name, **options) for payload in payloads)
        if isinstance(payloads, list | tuple):
            messages = list(messages)  # a list is encoded while the server stores it
        many: Any = publish_many  # one call for all kinds of connections and results
        published = many(conn, messages, cipher=cipher, returning=returning)
        if not returning:
            return published
        return self._with_handles(published, Publication(self, name, find_where(conn), cipher))

    @cached_property
    def returns(self) -> ReturnType:
        """The type of the output of its messages: what the function returns, awaited and without outcomes.

        Raises:
            TypeError: its annotation cannot be read, or is not a type that pydantic can validate.
        """
        return find_return_type(self.function, is_batch="batch_size" in self.options)

    def _name_for(self, topic: str | None) -> str:
        """Return the topic of a message.

        Raises:
            InvalidMessage: it is not one of the pattern; or it is missing, and this is a pattern.
        """
        if topic is None and is_pattern(self.name):
            raise InvalidMessage(
                f"topic is missing: {self.name} is a pattern, so say to which of its topics to publish: "
                f'topic="{self.name.rstrip("*")}created"'
            )
        if topic is not None and not matches(self.name, topic):
            raise InvalidMessage(f"topic is {topic}, which the handler of {self.name} does not get: publish to another")
        return topic or self.name

    def _with_handles(self, published: Any, publication: Publication) -> Any:
        """Return one or many messages that were published, or an awaitable of them, as handles."""
        if not isinstance(published, Coroutine):
            return _to_handles(published, MessageHandle, publication)
        tracked = published if isinstance(published, TrackedCoroutine) else TrackedCoroutine(published, self.name)
        return tracked.then(lambda result: _to_handles(result, AsyncMessageHandle, publication))

    def message(self, payload: Payload, *, topic: str | None = None, **options: Unpack[MessageOptions]) -> NewMessage:
        """Return a message of the topic, for a `publish_many` of several topics, or with different options.

        Args:
            payload: its payload.
            topic: its topic, needed if this is a pattern of topics.
            **options: see the attributes of NewMessage.
        """
        name = self._name_for(topic)
        if isinstance(payload, bytes):
            return NewMessage(topic=name, body=payload, **options)
        return NewMessage(topic=name, payload=payload, **options)

    def every(
        self, cron: str, payload: Payload | None = None, *, topic: str | None = None, **options: Unpack[ScheduleOptions]
    ) -> None:
        """Publish a message on a schedule.

        Args:
            cron: the times: the five fields of cron, six with the second before them, `@daily` and the like, or an
                interval like "30 seconds".
            payload: the payload of each message; {} by default.
            topic: the topic of each message, needed if this is a pattern of topics.
            **options: name: the name of the schedule, by default the name of the topic; the others are the keys of
            `[schedules]`.
        """
        check_durations(f"the schedule of topic {self.name}", options)
        published_to = self._name_for(topic)
        values = {"cron": cron, "topic": published_to, **options}
        name = str(values.pop("name", published_to))
        if payload is not None:
            values["payload"] = payload
        self.schedules.append(DeclaredSchedule(name, values, _caller()))


class TopicDecorator(Protocol):
    """Turns a handler that takes one payload into a topic."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[Payload, Q], Awaited[R]], /
    ) -> Topic[Payload, Concatenate[Payload, Q], Awaited[R], R]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[Payload, Q], R], /
    ) -> Topic[Payload, Concatenate[Payload, Q], R, R]: ...

    @overload
    def __call__(self, function: Callable[[], Awaited[R]], /) -> Topic[Any, [], Awaited[R], R]: ...

    @overload
    def __call__(self, function: Callable[[], R], /) -> Topic[Any, [], R, R]: ...


class BatchTopicDecorator(Protocol):
    """Turns a handler that takes a list of payloads, or of items, into a topic."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[list[Item[Payload]], Q], Awaited[list[R]]], /
    ) -> Topic[Payload, Concatenate[list[Item[Payload]], Q], Awaited[list[R]], R]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[list[Item[Payload]], Q], list[R]], /
    ) -> Topic[Payload, Concatenate[list[Item[Payload]], Q], list[R], R]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[list[Item[Payload]], Q], R], /
    ) -> Topic[Payload, Concatenate[list[Item[Payload]], Q], R]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[list[Payload], Q], Awaited[list[R]]], /
    ) -> Topic[Payload, Concatenate[list[Payload], Q], Awaited[list[R]], R]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[list[Payload], Q], list[R]], /
    ) -> Topic[Payload, Concatenate[list[Payload], Q], list[R], R]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[list[Payload], Q], R], /
    ) -> Topic[Payload, Concatenate[list[Payload], Q], R]: ...


@overload
def topic(name: str, *, batch_size: int, **options: Unpack[TopicOptions]) -> BatchTopicDecorator: ...


@overload
def topic(name: str, **options: Unpack[TopicOptions]) -> TopicDecorator: ...


def topic(name: str, **options: Any) -> Any:
    """Declare a topic at its handler. The daemon finds it if `handlers.modules` names its module.

    Args:
        name: the name of the topic, or a pattern: `orders.*` has one level more, `orders.**` any number of them.
        **options: the keys of its table in pgrouse.toml; the values in that file override these.

    Raises:
        TypeError: there is no name: `@topic` alone would be ignored. Or the second parameter is annotated as another
            context than the one that it gets.
        ValueError: an option is not a duration, and must be one.
    """
    place = _caller()
    if not isinstance(name, str):
        found = f"@topic above {name.__name__}" if hasattr(name, "__name__") else f"topic({name!r:.100})"
        raise TypeError(f'{found} has no name of a topic: write @topic("orders.created")')
    check_durations(f"topic {name}", options)

    def declare(function: Callable[P, R]) -> Topic[Any, P, R]:
        if isinstance(function, Topic):
            raise TypeError(f"{function.name} and {name} are declared on one function: a function handles one topic")
        _check_context(function, is_batch="batch_size" in options)
        return Topic(name, function, options, place)

    return declare


def _check_context(function: Callable[..., Any], *, is_batch: bool) -> None:
    """Check the context that a handler expects where the mistake is. The daemon checks what cannot be read yet."""
    with suppress(ValueError):  # an object without a signature
        second = list(inspect.signature(function).parameters.values())[1:2]
        if second and second[0].annotation is not inspect.Parameter.empty:
            from pgrouse.handlers.declaration import context_kind  # noqa: PLC0415 - slow to import: contexts

            context_kind.check_second_parameter(function, second[0], is_batch=is_batch)


def _to_handles(published: Any, kind: type[SharedHandle[Any]], publication: Publication) -> Any:
    if isinstance(published, list):
        return [kind.of(each, publication) for each in published]
    return kind.of(published, publication)


def _caller() -> Place:
    """Return the line of code that called the caller of this function."""
    frame = sys._getframe(2)  # noqa: SLF001 - as logging does
    return Place(frame.f_globals["__name__"], frame.f_code.co_filename, frame.f_lineno)
