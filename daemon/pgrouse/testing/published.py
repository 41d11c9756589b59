"""The messages that were published, whether or not they have ended since."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any, cast, overload

from pydantic_core import from_json

from pgrouse.client.queries.message import PUBLISHED
from pgrouse.publishing.drivers import driver_of
from pgrouse.publishing.drivers.driver import Driver
from pgrouse.publishing.statement import Statement

if TYPE_CHECKING:
    from pgrouse.publishing.drivers.connection_types import AnyAsyncConnection, AnyBlockingConnection


class Anything:
    """The payload was not given."""


ANY = Anything()
Messages = list[dict[str, Any]]


@overload
def published(  # type: ignore[overload-overlap]  # an async connection of SQLAlchemy has all that a blocking one has
    conn: AnyAsyncConnection, topic: str | None = None
) -> Coroutine[Any, Any, Messages]: ...


@overload
def published(conn: AnyBlockingConnection, topic: str | None = None) -> Messages: ...


def published(conn: Any, topic: str | None = None) -> Any:
    """Return the messages of a topic, or of all, in the order of publishing; await it on an async connection.

    Each is a mapping with id, topic, payload, body, headers, key, channel, priority, max_attempts and is_delayed.
    Messages that have ended since are included. It takes every kind of connection that `publish` takes, and sees
    uncommitted messages on it.
    """
    driver = driver_of(conn)
    return driver.run(_published(driver, topic))


@overload
def assert_published(
    conn: AnyAsyncConnection, topic: str, payload: Any = ANY, *, count: int | None = None, **options: Any
) -> Coroutine[Any, Any, Messages]: ...


@overload
def assert_published(
    conn: AnyBlockingConnection, topic: str, payload: Any = ANY, *, count: int | None = None, **options: Any
) -> Messages: ...


def assert_published(conn: Any, topic: str, payload: Any = ANY, *, count: int | None = None, **options: Any) -> Any:
    """Assert that a message was published; return the matching messages. Await it on an async connection.

    Args:
        conn: a connection of a kind that `published` takes.
        topic: the topic of the message.
        payload: the payload of the message; of a mapping, also inside lists, only the given members are compared.
        count: the exact number of messages; by default at least one.
        **options: the body, key, channel, priority, max_attempts, is_delayed, or headers (compared like payload) of the
        message.

    Raises:
        AssertionError: there is none, or another number; the text lists the messages.
    """
    driver = driver_of(conn)
    return driver.run(_assert_published(driver, topic, payload, count, options))


@overload
def assert_not_published(
    conn: AnyAsyncConnection, topic: str, payload: Any = ANY, **options: Any
) -> Coroutine[Any, Any, Messages]: ...


@overload
def assert_not_published(conn: AnyBlockingConnection, topic: str, payload: Any = ANY, **options: Any) -> Messages: ...


def assert_not_published(conn: Any, topic: str, payload: Any = ANY, **options: Any) -> Any:
    """Assert that no such message was published; the arguments are those of `assert_published`.

    Raises:
        AssertionError: a message was published; the text lists it.
    """
    return assert_published(conn, topic, payload, count=0, **options)


async def _published(driver: Driver, topic: str | None) -> Messages:
    (text,) = await driver.fetch_row(Statement(PUBLISHED, {"topic": topic})) or ("[]",)
    rows = cast("Messages", from_json(text))
    return [row | {"body": None if row["body"] is None else bytes.fromhex(row["body"])} for row in rows]


async def _assert_published(
    driver: Driver, topic: str, payload: Any, count: int | None, options: dict[str, Any]
) -> Messages:
    __tracebackhide__ = True
    wanted = options if payload is ANY else {"payload": payload, **options}
    of_topic = await _published(driver, topic)
    fitting = [each for each in of_topic if _fits(wanted, each)]
    if len(fitting) == count or (count is None and fitting):
        return fitting
    how_many = "at least one message" if count is None else f"{count} messages"
    like = "".join(f", {name} {value!r}" for name, value in wanted.items())
    raise AssertionError(
        f"expected {how_many} of topic {topic}{like}; {len(fitting)} of these fit:{_listed(of_topic)}"
        if of_topic
        else f"expected {how_many} of topic {topic}{like}; nothing of this topic was "
        f"published{_others(await _published(driver, None))}"
    )


def _fits(wanted: Any, there: Any) -> bool:
    if isinstance(wanted, Mapping):
        return isinstance(there, dict) and all(
            name in there and _fits(value, there[name]) for name, value in wanted.items()
        )
    if isinstance(wanted, list | tuple):
        return (
            isinstance(there, list)
            and len(wanted) == len(there)
            and all(_fits(one, other) for one, other in zip(wanted, there, strict=True))
        )
    return bool(wanted == there)


def _listed(messages: Messages) -> str:
    more = "\n  …" if len(messages) > 20 else ""  # noqa: PLR2004
    return "".join(f"\n  {_brief(each)}" for each in messages[:20]) + more


def _brief(message: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value!r:.200}" for name, value in message.items() if value is not None)


def _others(messages: Messages) -> str:
    topics = sorted({each["topic"] for each in messages})
    return f"; other topics: {', '.join(topics)}" if topics else ""
