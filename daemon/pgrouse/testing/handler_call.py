"""One call of a handler in a test, as a daemon calls it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from pgrouse.client.settlement import Settlement
from pgrouse.config import config
from pgrouse.handlers import loader, outcome
from pgrouse.handlers.call import HandlerCall
from pgrouse.handlers.handler import ExecutionMode, Handler
from pgrouse.handlers.publish_tracker import check_awaited

HandlersSource = Mapping[str, Callable[..., Any]] | config.Config | Path | str
DEFAULT_TOPIC = config.Topic(handler="a:test")


def handlers_of(given: HandlersSource) -> dict[str, Handler]:
    """Return handlers by topic. given: functions by topic; or a configuration, or its file, whose handlers are imported.

    Raises:
        ConfigError: a function is no handler; says why.
    """
    match given:
        case config.Config():
            return loader.load(given)
        case str() | Path():
            return loader.load(config.load(Path(given)))
        case _:
            return {topic: handler_of(topic, function) for topic, function in given.items()}


def handler_of(topic: str, function: Callable[..., Any]) -> Handler:
    """Return a function as the handler of a topic, with the usual settings."""
    name = f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', type(function).__qualname__)}"
    return loader.inspect_handler(topic, name, function, DEFAULT_TOPIC, config.HandlersSettings())


def run_handler(call: HandlerCall) -> object:
    """Call the handler, and return what it returned or raised."""
    try:
        returned = call.call()
        return check_awaited(
            call.tracker, asyncio.run(_awaited(returned)) if hasattr(returned, "__await__") else returned
        )
    except (Exception, SystemExit) as error:  # noqa: BLE001 - an exception is its result
        return error


async def run_handler_async(handler: Handler, call: HandlerCall) -> object:
    """The same on an event loop: a sync handler in a thread."""
    if handler.mode is not ExecutionMode.ASYNC:
        return await asyncio.to_thread(run_handler, call)
    try:
        coroutine = call.call()
        return check_awaited(call.tracker, await coroutine if call.was_called else None)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - an exception is its result
        return error


def settlements_of(call: HandlerCall, returned: object) -> list[Settlement]:
    """Return how the attempts ended, also those that `ctx.transaction()` has completed."""
    completed = [outcome.to_settlement(message, result) for message, result in call.completed()]
    return completed + call.to_settlements(returned)


async def _awaited(returned: Awaitable[object]) -> object:
    return await returned
