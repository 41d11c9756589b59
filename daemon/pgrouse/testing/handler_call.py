"""One call of a handler in a test, as a daemon calls it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any

from pgrouse.client.processing.settlement import Settlement
from pgrouse.config import config
from pgrouse.handlers import outcome
from pgrouse.handlers.attempt.attempt_context import CleanContext, InContext
from pgrouse.handlers.call import HandlerCall
from pgrouse.handlers.ctx.publish_tracker import check_awaited
from pgrouse.handlers.declaration import loader
from pgrouse.handlers.declaration.discovery import with_declared
from pgrouse.handlers.declaration.lifespan import Lifespan
from pgrouse.handlers.declaration.topic import Topic
from pgrouse.handlers.handler import ExecutionMode, Handler
from pgrouse.handlers.outcome import EventWait

AnyTopic = Topic[Any, ..., Any]
HandlersSource = Mapping[str, Callable[..., Any] | Handler] | Iterable[AnyTopic] | config.Config | Path | str
# Runs the coroutine of an async handler to its end.
RunCoroutine = Callable[[Coroutine[Any, Any, object]], object]
DEFAULT_TOPIC = config.TopicSettings(handler="a:test")


def handlers_of(given: HandlersSource) -> dict[str, Handler]:
    """Return handlers by topic.

    given: functions by topic; topics declared in code; or a configuration or its file, whose handlers are imported.

    Raises:
        ConfigError: a function is not a handler; the text says why.
    """
    match given:
        case config.Config():
            return loader.load(with_declared(given))
        case str() | Path():
            return loader.load(with_declared(config.load(Path(given))))
        case Mapping():
            return {topic: handler_of(topic, function) for topic, function in given.items()}
        case _:
            return {each.name: handler_of(each.name, each) for each in given}


def lifespan_of(given: HandlersSource) -> Lifespan | None:
    """Return the lifespan of a configuration, or of its file, if it has one."""
    settings = config.load(Path(given)) if isinstance(given, str | Path) else given
    if not isinstance(settings, config.Config) or (function := loader.find_lifespan(settings.handlers)) is None:
        return None
    return Lifespan(f"handlers.lifespan: {settings.handlers.lifespan}", function)


def handler_of(topic: str, function: Callable[..., Any] | Handler) -> Handler:
    """Return a function as the handler of a topic: with the settings of its decorator, or with the defaults."""
    if isinstance(function, Handler):
        return function
    if isinstance(function, Topic):
        return loader.find_declared(topic, function)
    name = f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', type(function).__qualname__)}"
    return loader.inspect_handler(topic, name, function, DEFAULT_TOPIC, config.HandlersSettings())


def run_handler(call: HandlerCall, run_coroutine: RunCoroutine = asyncio.run) -> object:
    """Call the handler in a new context, and return what it returned or raised."""
    return CleanContext().copy().run(_run_handler, call, run_coroutine)


def _run_handler(call: HandlerCall, run_coroutine: RunCoroutine) -> object:
    try:
        returned = call.call()
        return check_awaited(
            call.tracker, run_coroutine(_awaited(returned)) if hasattr(returned, "__await__") else returned
        )
    except (Exception, SystemExit, EventWait) as error:  # noqa: BLE001 - an exception is its result
        return error


async def run_handler_async(handler: Handler, call: HandlerCall) -> object:
    """Do the same on an event loop; a sync handler runs in a thread."""
    if handler.mode is not ExecutionMode.ASYNC:
        return await asyncio.to_thread(run_handler, call)
    return await InContext(CleanContext().copy(), _run_handler_async(call))


async def _run_handler_async(call: HandlerCall) -> object:
    try:
        coroutine = call.call()
        return check_awaited(call.tracker, await coroutine if call.was_called else None)
    except (Exception, SystemExit, EventWait) as error:  # noqa: BLE001 - an exception is its result
        return error


def completed_by(call: HandlerCall) -> list[Settlement]:
    """Return the ends of the messages that the handler has completed."""
    return [outcome.to_settlement(message, result) for message, result in call.completed()]


async def _awaited(returned: Awaitable[object]) -> object:
    """Return the result, or the exception.

    It must not be raised here: the loop's frames would keep the exception alive.
    """
    try:
        return await returned
    except (Exception, SystemExit, EventWait) as error:  # noqa: BLE001 - an exception is its result
        return error
