"""Finds the handlers that the configuration names.

It imports the functions, and finds out which arguments each takes and where it runs.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast, get_type_hints

from pydantic import TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError

from pgrouse.config import config
from pgrouse.config.source import ConfigProblem, ConfigProblems, TopicKeyError
from pgrouse.errors import ConfigError
from pgrouse.handlers.ack_rules import AckPolicy, AckRules, RetryStrategy, to_strategy
from pgrouse.handlers.declaration.batch_options import find_batch_problems, to_batch_options
from pgrouse.handlers.declaration.context_kind import (
    alternatives_of,
    annotated_function,
    check_context,
    is_a_context,
    is_async_function,
)
from pgrouse.handlers.declaration.discovery import extend_import_path, import_module, settings_of
from pgrouse.handlers.declaration.failure import Hook
from pgrouse.handlers.declaration.lifespan import LifespanFunction
from pgrouse.handlers.declaration.middleware import with_middleware
from pgrouse.handlers.declaration.topic import Topic
from pgrouse.handlers.handler import ExecutionMode, Handler
from pgrouse.logging import events
from pgrouse.logging.event_logger import log

# Children of one topic with isolation = "process", unless its concurrency says otherwise.
DEFAULT_CHILDREN = 4
# Payload and context.
TAKES_CONTEXT = 2


def load(settings: config.Config) -> dict[str, Handler]:
    """Import the handlers of all topics.

    Raises:
        ConfigProblems: handlers that are not allowed, cannot be imported, or do not take a payload and a context; with
            their names and places.
    """
    extend_import_path(settings.handlers)
    problems = [*find_batch_problems(settings), *_find_problems_around(settings)]
    # A middleware that cannot be used is one problem, not one for each topic.
    rules = settings.handlers.model_copy(update={"middleware": []}) if problems else settings.handlers
    handlers: dict[str, Handler] = {}
    for topic, chosen in settings.topics_with_handler.items():
        try:
            handlers[topic] = find_handler(topic, chosen, rules)
        except ConfigError as error:
            key = ("topics", topic, error.key if isinstance(error, TopicKeyError) else "handler")
            problems.append(settings.problem(key, error))
    if problems:
        raise ConfigProblems(problems)
    return handlers


def _find_problems_around(settings: config.Config) -> Iterator[ConfigProblem]:
    """Yield the problems of the functions that are called around handlers."""
    for name, find in AROUND.items():
        try:
            find(settings.handlers)
        except ConfigError as error:
            key = ("handlers", name)
            yield settings.problem(key, error)


def find_lifespan(rules: config.HandlersSettings) -> LifespanFunction | None:
    """Import the lifespan, if there is one.

    Raises:
        ConfigError: it cannot be used; with the reason and the fix.
    """
    if rules.lifespan is None:
        return None
    function = _find_function(rules.lifespan, rules)
    if not callable(function):
        raise ConfigError(f"{rules.lifespan} is not a function: its type is {type(function).__name__}")
    if _is_a_generator(function) or inspect.iscoroutinefunction(function):
        raise ConfigError(f"{rules.lifespan} is no context manager: decorate it with @contextlib.asynccontextmanager")
    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{rules.lifespan} is called without arguments: {error}") from error
    return cast("LifespanFunction", function)


def find_middleware(rules: config.HandlersSettings) -> list[Callable[..., Any]]:
    """Import the middleware, the outermost first.

    Raises:
        ConfigError: one cannot be used; with the reason and the fix.
    """
    found = [(name, _find_function(name, rules)) for name in rules.middleware]
    for name, function in found:
        _check_callable_with(name, function, ("ctx", "call_next"))
    return [function for _, function in found]


def find_hooks(rules: config.HandlersSettings, key: str) -> list[Hook]:
    """Import the hooks that `on_failure` or `on_death` names.

    Raises:
        ConfigError: one cannot be used; with the reason and the fix.
    """
    found = [(name, _find_function(name, rules)) for name in getattr(rules, key)]
    for name, function in found:
        _check_callable_with(name, function, ("failure",))
    return found


def find_redact(settings: config.Config) -> Callable[[Any], Any]:
    """Import the function that `web.redact` names.

    Raises:
        ConfigError: it cannot be used; with the reason and the fix.
    """
    name = str(settings.web.redact)
    extend_import_path(settings.handlers)
    found = _find_function(name, settings.handlers)
    _check_callable_with(name, found, ("content",))
    if inspect.iscoroutinefunction(found):
        raise ConfigError(f"{name} is async: web.redact is called for each content, and must return it at once")
    return cast("Callable[[Any], Any]", found)


def _check_callable_with(name: str, function: Any, arguments: tuple[str, ...]) -> None:
    if not callable(function):
        raise ConfigError(f"{name} is not a function: its type is {type(function).__name__}")
    if _is_a_generator(function):
        raise ConfigError(f"{name} has a yield, so that a call of it does nothing")
    try:
        inspect.signature(function).bind(*arguments)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name} is called as {name.rpartition(':')[2]}({', '.join(arguments)}): {error}") from error


# The functions that load the hooks around handlers, by the keys that name the hooks.
AROUND: dict[str, Callable[[config.HandlersSettings], object]] = {
    "lifespan": find_lifespan,
    "middleware": find_middleware,
    "on_failure": partial(find_hooks, key="on_failure"),
    "on_death": partial(find_hooks, key="on_death"),
}


def find_handler(topic: str, chosen: config.TopicSettings, rules: config.HandlersSettings) -> Handler:
    """Import one handler and return its description.

    Raises:
        ConfigError: it cannot be used; with the reason and the fix.
    """
    return inspect_handler(topic, chosen.handler, _find_function(chosen.handler, rules), chosen, rules)


def find_declared(topic: str, declared: Topic[Any, ..., Any]) -> Handler:
    """Return the description of a topic in code as a handler, with the settings of its decorator.

    Raises:
        ConfigError: it cannot be used; with the reason and the fix.
    """
    rules = config.HandlersSettings(modules=[declared.place.module])
    name = f"{declared.place.module}:{declared.__name__}"
    return inspect_handler(topic, name, declared.function, settings_of(topic, declared), rules)


def inspect_handler(
    topic: str, name: str, function: Any, chosen: config.TopicSettings, rules: config.HandlersSettings
) -> Handler:
    """Return the description of a function as the handler of a topic. name: the name that errors use.

    Raises:
        ConfigError: it cannot be used; with the reason and the fix.
    """
    if not callable(function):
        raise ConfigError(f"{name} is not a function: its type is {type(function).__name__}")
    if any(map(_is_a_generator, (function, getattr(function, "__call__", None)))):  # noqa: B004
        raise ConfigError(f"{name} has a yield, so that a call of it does nothing: a handler returns its result")
    is_async = is_async_function(function)
    arguments, wanted = _signature(name, function, is_async, chosen.batch_size is not None)
    batch_options, wanted = to_batch_options(chosen, arguments, wanted)
    payload = _adapter(name, wanted)
    mode = _mode(chosen, is_async)
    usual = 1 if batch_options else DEFAULT_CHILDREN if mode is ExecutionMode.PROCESS else None
    concurrency = chosen.concurrency or usual
    # A batch handler acknowledges through its items, not through its context.
    ends = _rules(chosen, rules, 2 if batch_options else arguments)
    if middleware := [each for each in find_middleware(rules) if is_async_function(each) is is_async]:
        function, arguments = with_middleware(function, arguments, middleware, is_async=is_async), TAKES_CONTEXT
    log_bytes = _log_bytes(chosen)
    return Handler(
        topic, name, function, mode, arguments, payload, concurrency, ends, batch_options, is_async, log_bytes
    )


def _is_a_generator(function: Any) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def find_suspicious_settings(settings: config.Config) -> list[ConfigProblem]:
    """Return settings that are allowed but surprise.

    They are keys of topics that have no effect together, or a larger one than their author may expect.
    """
    found = []
    for topic, chosen in settings.topics.items():
        key: tuple[str, ...] = ("topics", topic, "retry_strategy" if chosen.retry_strategy else "ack_policy")
        if text := _suspicion(chosen):
            found.append(settings.problem(key, text))
    if text := _middleware_suspicion(settings):
        key = ("handlers", "middleware")
        found.append(settings.problem(key, text))
    return found


def log_suspicious_settings(settings: config.Config) -> None:
    """Log once the settings that are valid but may surprise."""
    for each in find_suspicious_settings(settings):
        log.warning(events.HANDLER_CONFIG_SUSPICIOUS, where=str(each.origin), key=each.key, reason=each.text)


def _middleware_suspicion(settings: config.Config) -> str | None:
    """Find middleware of one kind while handlers are of both kinds.

    The other handlers run without it, and the author may not know.
    """
    kinds = {is_async_function(each) for each in find_middleware(settings.handlers)}
    if len(kinds) != 1:
        return None
    bare = [
        topic
        for topic, chosen in settings.topics_with_handler.items()
        if is_async_function(_find_function(chosen.handler, settings.handlers)) not in kinds
    ]
    kind = "async" if True in kinds else "not async"
    return f"all of it is {kind}: it is not around the handlers of {', '.join(bare)}" if bare else None


def _suspicion(chosen: config.TopicSettings) -> str | None:
    match chosen.ack_policy, chosen.retry_strategy:
        case "ack_first", _:
            return (
                'with ack_policy = "ack_first" a message whose handler fails, or whose worker dies, is not tried again'
            )
        case "ack" | "reject_on_error" | "manual" as policy, str():
            return (
                f'with ack_policy = "{policy}" the strategy is asked only after ctx.nack() or Retry, '
                "never after an exception"
            )
    return None


def _rules(chosen: config.TopicSettings, rules: config.HandlersSettings, arguments: int) -> AckRules:
    policy = AckPolicy(chosen.ack_policy)
    if policy is AckPolicy.MANUAL and arguments < 2:  # noqa: PLR2004 - payload and context
        raise TopicKeyError(
            "ack_policy",
            f'"manual" needs a handler that can acknowledge: give {chosen.handler} a second parameter for the context',
        )
    if policy is AckPolicy.ACK_FIRST and chosen.retry_strategy is not None:
        raise TopicKeyError(
            "retry_strategy",
            'with ack_policy = "ack_first" nothing is tried again: remove it, or use ack_policy = "nack_on_error"',
        )
    return AckRules(policy, _strategy(chosen.retry_strategy, rules) if chosen.retry_strategy else None)


def _log_bytes(chosen: config.TopicSettings) -> int:
    if chosen.log_bytes and chosen.batch_size is not None:
        raise TopicKeyError(
            "log_bytes", "the log lines of a batch belong to no single message: remove log_bytes or batch_size"
        )
    return chosen.log_bytes


def _strategy(name: str, rules: config.HandlersSettings) -> RetryStrategy:
    try:
        return to_strategy(name, _find_function(name, rules))
    except ConfigError as error:
        raise TopicKeyError("retry_strategy", str(error)) from error


def _why_not(module: str) -> str:
    """Return why a module is not allowed. Look only for its package, so that nothing of it is imported."""
    top = module.partition(".")[0]
    if top not in sys.modules and importlib.util.find_spec(top) is None:
        return f"there is no module {module}: none in a folder of handlers.import_path, and none is installed"
    return (
        f"module {module} may not be used: put it into a folder of handlers.import_path, "
        "or name it in handlers.allowed_modules"
    )


def _find_function(name: str, rules: config.HandlersSettings) -> Any:
    """Import the function that a name like `module:function` means, if it is allowed."""
    module_name, _, function_name = name.partition(":")
    if not rules.permits(module_name):
        raise ConfigError(_why_not(module_name))
    found = _import(module_name, function_name)
    if not isinstance(found, Topic):
        return found
    if not rules.declares(module_name):
        raise ConfigError(f"{name} is declared by @topic, with options: name {module_name} in handlers.modules")
    return found.function


def _import(module_name: str, function_name: str) -> Any:
    found: Any = import_module(module_name)
    for part in function_name.split("."):
        if not hasattr(found, part):
            known = sorted(name for name, value in vars(found).items() if inspect.isfunction(value))
            raise ConfigError(
                f"{module_name} has no function {function_name}" + (f" (it has: {', '.join(known)})" if known else "")
            )
        found = getattr(found, part)
    return found


def _mode(chosen: config.TopicSettings, is_async: bool) -> ExecutionMode:
    if chosen.isolation == "process":
        return ExecutionMode.PROCESS
    return ExecutionMode.ASYNC if is_async else ExecutionMode.THREAD


def _signature(name: str, function: Callable[..., Any], is_async: bool, is_batch: bool) -> tuple[int, Any]:
    """Return how many of payload and context a function takes, and the type of the first; Any if it has none."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
        hints = get_type_hints(annotated_function(function), include_extras=True)
    except Exception as error:
        raise ConfigError(f"the signature of {name} cannot be read: {error}") from error
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [
        p for p in parameters if p.default is p.empty and p.kind is not p.VAR_POSITIONAL and p.kind is not p.VAR_KEYWORD
    ]
    if len(required) > 2 or any(p.kind is p.KEYWORD_ONLY for p in required):  # noqa: PLR2004 - payload and context
        raise ConfigError(
            f"{name} needs {len(required)} arguments: a handler takes the payload and optionally a context"
        )
    wanted = [hints.get(each.name, Any) for each in positional[:2]]
    if wanted and any(map(is_a_context, alternatives_of(wanted[0]))):
        raise ConfigError(
            f"{name} gets the payload first, and then the context: {positional[0].name} is the wrong way round"
        )
    if len(wanted) > 1:
        check_context(name, positional[1], wanted[1], is_async, is_batch)
    return len(wanted), wanted[0] if wanted else Any


def _adapter(name: str, wanted: Any) -> TypeAdapter[Any] | None:
    try:
        return None if wanted is Any else TypeAdapter(wanted)
    except PydanticSchemaGenerationError as error:
        raise ConfigError(
            f"the payload type of {name} cannot be validated: use a pydantic model, a dataclass, "
            "a TypedDict or plain types, "
            f"or no annotation, not {getattr(wanted, '__name__', wanted)}"
        ) from error
    except Exception as error:
        reason, *_ = str(error).splitlines() or [""]
        raise ConfigError(f"the payload type of {name} cannot be validated: {reason}") from error
