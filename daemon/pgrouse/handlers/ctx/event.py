"""The events that a handler waits for (`ctx.wait_for_event`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

from pgrouse.client.call import Call
from pgrouse.client.calls.event import SavedEvent, load_events
from pgrouse.client.message import Message
from pgrouse.client.queries.clock import now
from pgrouse.client.signal_url import NO_ADDRESS, signal_url
from pgrouse.config import duration
from pgrouse.config.duration import AnyDuration
from pgrouse.database.run_sync import run_sync
from pgrouse.errors import EventTimeout, InvalidEvent, LockLost
from pgrouse.handlers.ctx.step import AsyncStepConnection, BlockingStepConnection, ask
from pgrouse.handlers.outcome import EventWait
from pgrouse.handlers.return_type import ReturnType
from pgrouse.handlers.runtime import HandlerRuntime
from pgrouse.publishing.new_message import LABEL

T = TypeVar("T")
# Returns how a handler reaches the database. It is called when it asks: a child process cannot, and need not.
FindAccess = Callable[[], AsyncStepConnection | BlockingStepConnection]
NAME_CHARS = 180
MAX_HOLD = timedelta(days=366)


@dataclass(frozen=True, slots=True)
class AwaitedEvent:
    """A wait for an event, as its handler asks for it.

    Attributes:
        timeout: how long it waits at most; None = without a limit.
        returns: the type of the event's payload.
    """

    name: str
    timeout: timedelta | None
    returns: ReturnType

    def read(self, payload: str) -> Any:
        """Return the payload of an event in its type.

        Raises:
            InvalidEvent: it does not match its type.
        """
        try:
            return self.returns.read(payload)
        except ValueError as error:
            raise InvalidEvent(f"the payload of event {self.name!r} is no {self.returns}: {error}") from None


def to_wait(name: str, timeout: AnyDuration | None, returns: Any) -> AwaitedEvent:
    """Return a wait.

    Raises:
        InvalidEvent: the name cannot be one, or pydantic cannot validate the type.
        TypeError, ValueError: the timeout is not a valid time.
    """
    check_name(name)
    limit = None if timeout is None else duration.to_timedelta(timeout, "ctx.wait_for_event(timeout=...)")
    try:
        return AwaitedEvent(name, limit, ReturnType(Any if returns is None else returns))
    except TypeError as error:
        raise InvalidEvent(f"ctx.wait_for_event: {error}") from None


def check_name(name: object) -> None:
    """Make sure that an event can have this name."""
    if not isinstance(name, str) or not LABEL.fullmatch(name) or len(name) > NAME_CHARS:
        raise InvalidEvent(
            f"ctx.wait_for_event: name {name!r:.250} must be a string of 1 to {NAME_CHARS} printable characters"
        )


class Events:
    """The events of one message in one attempt."""

    def __init__(self, message: Message, runtime: HandlerRuntime) -> None:
        self._message, self._runtime = message, runtime
        self._waits: Counter[str] = Counter()
        self._saved: list[SavedEvent] = []

    def wait_async(self, wait: AwaitedEvent) -> Coroutine[Any, Any, Any]:
        """Return an awaitable of the payload of an event."""
        return self._result(wait, lambda: AsyncStepConnection(self._runtime.pool))

    def wait_blocking(self, wait: AwaitedEvent) -> Any:
        """Return the payload of an event in a thread."""
        return run_sync(self._result(wait, lambda: BlockingStepConnection(self._runtime.blocking_pool)))

    def url_async(self, name: str, expires: AnyDuration) -> Coroutine[Any, Any, str]:
        """Return an awaitable of a URL that signals the next event of this name."""
        return self._url(name, expires, AsyncStepConnection(self._runtime.pool))

    def url_blocking(self, name: str, expires: AnyDuration) -> str:
        """Return such a URL in a thread."""
        return run_sync(self._url(name, expires, BlockingStepConnection(self._runtime.blocking_pool)))

    async def _result(self, wait: AwaitedEvent, access: FindAccess) -> Any:
        """Return the payload of the event that belongs to this wait.

        Raises:
            EventTimeout: the time of the wait is over.
            EventWait: it has not come yet.
        """
        number = self._waits[wait.name] + 1
        found = self._find(wait.name, number)
        if found is None:
            self._saved = await self._load(access)
            found = self._find(wait.name, number)
        if found is None:
            raise EventWait(wait.name, number, wait.timeout)
        self._waits[wait.name] = number
        if found.timed_out or found.payload is None:
            raise EventTimeout(f"event {wait.name!r} did not come in time for message {self._message.id}")
        return wait.read(found.payload)

    def _find(self, name: str, number: int) -> SavedEvent | None:
        of_name = [each for each in self._saved if each.name == name]
        return of_name[number - 1] if number <= len(of_name) else None

    async def _load(self, access: FindAccess) -> list[SavedEvent]:
        given = self._runtime.given_events
        if given is not None:
            return list(given)
        call = load_events(self._message.id, self._message.claim_id)
        if rows := await self._ask(access(), call):
            return rows
        raise LockLost(f"message {self._message.id} is not this worker's any more: it cannot wait for an event")

    async def _url(self, name: str, expires: AnyDuration, access: AsyncStepConnection | BlockingStepConnection) -> str:
        check_name(name)
        holds = duration.to_timedelta(expires, "ctx.signal_url(expires=...)")
        if self._runtime.web_url is None:
            raise ValueError(f"ctx.signal_url: {NO_ADDRESS}")
        if holds > MAX_HOLD:
            raise ValueError(f"ctx.signal_url(expires={expires!r:.50}): a URL holds at most {MAX_HOLD.days} days")
        until = await self._ask(access, now()) + holds
        number = self._waits[name] + 1
        return await self._ask(access, signal_url(self._runtime.web_url, self._message.id, name, until, number))

    async def _ask(self, access: AsyncStepConnection | BlockingStepConnection, call: Call[T]) -> T:
        # Never in the handler's transaction: that ends before the message waits.
        return await ask(self._message, self._runtime, access, None, call)
