"""One call of a handler in a test, as a daemon calls it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, cast

from pgrouse.client.message import Message
from pgrouse.client.settlement import Settlement
from pgrouse.config import config
from pgrouse.handlers import handler, outcome
from pgrouse.handlers.ack_rules import AckPolicy
from pgrouse.handlers.batch import Batch
from pgrouse.handlers.context import Context
from pgrouse.handlers.handler import Handler, Mode
from pgrouse.handlers.outcome import Ack
from pgrouse.handlers.publish_tracker import check_awaited, tracker_of
from pgrouse.testing.runtime import TestRuntime

HandlersSource = Mapping[str, Callable[..., Any]] | config.Config | Path | str
DEFAULT_TOPIC = config.Topic(handler="a:test")


def handlers_of(given: HandlersSource) -> dict[str, Handler]:
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
    return handler.inspect_handler(topic, name, function, DEFAULT_TOPIC, config.HandlersSettings())


class HandlerCall:
    """One call of a handler.

    Args:
        messages: one, or those of a batch.
    """

    def __init__(self, handler: Handler, messages: list[Message], runtime: TestRuntime) -> None:
        self.handler, self.messages = handler, messages
        completed = handler.rules.policy is AckPolicy.ACK_FIRST
        self._context = Context(messages[0], cast("Any", runtime), completed=completed)
        self._batch = None if handler.batch_options is None else Batch(handler, messages, cast("Any", runtime))

    def run(self) -> object:
        """Call the handler, and return what it returned or raised."""
        try:
            returned = self._call()
            return self._checked(asyncio.run(_awaited(returned)) if hasattr(returned, "__await__") else returned)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - an exception is its result
            return error

    async def run_async(self) -> object:
        """The same on an event loop: a sync handler in a thread."""
        if self.handler.mode is not Mode.ASYNC:
            return await asyncio.to_thread(self.run)
        try:
            return self._checked(await self._call())
        except (Exception, SystemExit) as error:  # noqa: BLE001 - an exception is its result
            return error

    def settlements(self, returned: object) -> list[Settlement]:
        """Return the settlements of the attempts, also of those that `ctx.transaction()` has completed."""
        if self._batch is not None:
            done = {item.id: self._batch.outcomes.get(item.id) for item in self._batch.items if item.completed}
            completed = [outcome.to_settlement(each, done[each.id]) for each in self.messages if each.id in done]
            return completed + self._batch.to_settlements(returned)
        (message,) = self.messages
        if self._context.completed and self.handler.rules.policy is not AckPolicy.ACK_FIRST:
            return [outcome.to_settlement(message, Ack(self._context.output))]
        return [self.handler.rules.to_settlement(message, returned, self._context.action)]

    def _checked(self, returned: object) -> object:
        return check_awaited(tracker_of(self._context), returned)

    def _call(self) -> Any:
        return self.handler.call(self.messages[0], self._context) if self._batch is None else self._batch.call()


async def _awaited(returned: Awaitable[object]) -> object:
    return await returned
