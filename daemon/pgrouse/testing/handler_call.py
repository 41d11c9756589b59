"""One handler at work in a test: found by what the test names, called as a daemon calls it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, cast

from pgrouse.config import config

from pgrouse.handlers import handler

from pgrouse.handlers import outcome
from pgrouse.handlers.ack_rules import AckPolicy
from pgrouse.handlers.batch import Batch
from pgrouse.handlers.context import Context
from pgrouse.handlers.handler import Handler, Mode
from pgrouse.client.message import Message
from pgrouse.handlers.outcome import Acked, Ended
from pgrouse.handlers.publish_tracker import checked, promised_by
from pgrouse.testing.runtime import Stage

Handlers = Mapping[str, Callable[..., Any]] | config.Config | Path | str
USUAL = config.Topic(handler="a:test")


def handlers_of(given: Handlers) -> dict[str, Handler]:
    """Return handlers by topic. given: functions by topic; or a configuration, or its file, whose handlers are imported.

    Raises:
        ConfigError: a function is no handler; says why.
    """
    match given:
        case config.Config():
            return handler.load(given)
        case str() | Path():
            return handler.load(config.load(Path(given)))
        case _:
            return {topic: handler_of(topic, function) for topic, function in given.items()}


def handler_of(topic: str, function: Callable[..., Any]) -> Handler:
    """Return a function as the handler of a topic, with the usual settings."""
    name = f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', type(function).__qualname__)}"
    return handler.described(topic, name, function, USUAL, config.Handlers())


class Play:
    """One call of a handler.

    Args:
        messages: one, or those of a batch.
    """

    def __init__(self, worked: Handler, messages: list[Message], stage: Stage) -> None:
        self.worked, self.messages = worked, messages
        completed = worked.rules.policy is AckPolicy.ACK_FIRST
        self._context = Context(messages[0], cast("Any", stage), completed=completed)
        self._batch = None if worked.batching is None else Batch(worked, messages, cast("Any", stage))

    def said(self) -> object:
        """Call it, and return what it returned or raised."""
        try:
            said = self._call()
            return self._checked(asyncio.run(_awaited(said)) if hasattr(said, "__await__") else said)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - what it raises is what it says
            return error

    async def said_on_the_loop(self) -> object:
        """The same on an event loop: a sync handler in a thread."""
        if self.worked.mode is not Mode.ASYNC:
            return await asyncio.to_thread(self.said)
        try:
            return self._checked(await self._call())
        except (Exception, SystemExit) as error:  # noqa: BLE001 - what it raises is what it says
            return error

    def ended(self, said: object) -> list[Ended]:
        """Return how the attempts ended; also those that `ctx.transaction()` has completed."""
        if self._batch is not None:
            done = {item.id: self._batch.said.get(item.id) for item in self._batch.items if item.completed}
            completed = [outcome.ended(each, done[each.id]) for each in self.messages if each.id in done]
            return completed + self._batch.conclude(said)
        (message,) = self.messages
        if self._context.completed and self.worked.rules.policy is not AckPolicy.ACK_FIRST:
            return [outcome.ended(message, Acked(self._context.output))]
        return [self.worked.rules.ended(message, said, self._context.action)]

    def _checked(self, said: object) -> object:
        return checked(promised_by(self._context), said)

    def _call(self) -> Any:
        return self.worked.call(self.messages[0], self._context) if self._batch is None else self._batch.call()


async def _awaited(said: Awaitable[object]) -> object:
    return await said
