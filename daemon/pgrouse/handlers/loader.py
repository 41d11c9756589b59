"""Finds the handlers that the configuration names: imports the functions, and sees what each takes and where it runs."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable
from functools import partial
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter

from pgrouse.config import config
from pgrouse.config.source import ConfigProblem, ConfigProblems, TopicKeyError, show_key
from pgrouse.errors import ConfigError
from pgrouse.handlers.ack_rules import AckPolicy, AckRules
from pgrouse.handlers.batch import BatchContext
from pgrouse.handlers.batch_options import find_batch_problems, to_batch_options
from pgrouse.handlers.context import Context
from pgrouse.handlers.handler import ExecutionMode, Handler
from pgrouse.handlers.retry_strategy import RetryStrategy, to_strategy

# Children of one topic with isolation = "process", unless its concurrency says otherwise.
DEFAULT_CHILDREN = 4


def load(settings: config.Config) -> dict[str, Handler]:
    """Import the handlers of all topics.

    Raises:
        ConfigProblems: those that may not be used, cannot be imported, or do not take a payload and a context; with which and where.
    """
    for folder in reversed(settings.handlers.import_path):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    problems: list[ConfigProblem] = find_batch_problems(settings)
    handlers: dict[str, Handler] = {}
    for topic, chosen in settings.topics_with_handler.items():
        try:
            handlers[topic] = find_handler(topic, chosen, settings.handlers)
        except ConfigError as error:
            key = ("topics", topic, error.key if isinstance(error, TopicKeyError) else "handler")
            problems.append(ConfigProblem(settings.origin(*key), show_key(key), f"{show_key(key)}: {error}"))
    if problems:
        raise ConfigProblems(problems)
    return handlers


def find_handler(topic: str, chosen: config.Topic, rules: config.HandlersSettings) -> Handler:
    """Import one handler and see what it is.

    Raises:
        ConfigError: why it cannot be used, and the fix.
    """
    return inspect_handler(topic, chosen.handler, _find_function(chosen.handler, rules), chosen, rules)


def inspect_handler(
    topic: str, name: str, function: Any, chosen: config.Topic, rules: config.HandlersSettings
) -> Handler:
    """See what a function is as the handler of a topic. name: as errors call it.

    Raises:
        ConfigError: why it cannot be used, and the fix.
    """
    if not callable(function):
        raise ConfigError(f"{name} is a {type(function).__name__}, not a function")
    if any(map(_is_a_generator, (function, getattr(function, "__call__", None)))):  # noqa: B004
        raise ConfigError(f"{name} has a yield, so that a call of it does nothing: a handler returns its result")
    arguments, wanted = _signature(name, function)
    batch_options, wanted = to_batch_options(chosen, arguments, wanted)
    payload = _adapter(name, wanted)
    mode = _mode(chosen, function)
    usual = 1 if batch_options else DEFAULT_CHILDREN if mode is ExecutionMode.PROCESS else None
    concurrency = chosen.concurrency or usual
    # A batch handler acknowledges by its items, not by its context.
    ends = _rules(chosen, rules, 2 if batch_options else arguments)
    return Handler(topic, name, function, mode, arguments, payload, concurrency, ends, batch_options)


def _is_a_generator(function: Any) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def find_suspicious_settings(settings: config.Config) -> list[ConfigProblem]:
    """Return what is allowed but surprises: keys of topics that mean nothing together, or more than their author may think."""
    found = []
    for topic, chosen in settings.topics.items():
        key = ("topics", topic, "retry_strategy" if chosen.retry_strategy else "ack_policy")
        if text := _suspicion(chosen):
            found.append(ConfigProblem(settings.origin(*key), show_key(key), f"{show_key(key)}: {text}"))
    return found


def _suspicion(chosen: config.Topic) -> str | None:
    match chosen.ack_policy, chosen.retry_strategy:
        case "ack_first", _:
            return (
                'with ack_policy = "ack_first" a message whose handler fails, or whose worker dies, is not worked again'
            )
        case "ack" | "reject_on_error" | "manual" as policy, str():
            return f'with ack_policy = "{policy}" the strategy is asked only after ctx.nack() or Retry, never after an exception'
    return None


def _rules(chosen: config.Topic, rules: config.HandlersSettings, arguments: int) -> AckRules:
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


def _strategy(name: str, rules: config.HandlersSettings) -> RetryStrategy:
    try:
        return to_strategy(name, _find_function(name, rules))
    except ConfigError as error:
        raise TopicKeyError("retry_strategy", str(error)) from error


def _find_function(name: str, rules: config.HandlersSettings) -> Any:
    """Import what a name like `module:function` means, if it may be used."""
    module_name, _, function_name = name.partition(":")
    if not rules.permits(module_name):
        raise ConfigError(
            f"module {module_name} may not be used: put it into a folder of handlers.import_path, or name it in handlers.allowed_modules"
        )
    return _import(module_name, function_name)


def _import(module_name: str, function_name: str) -> Any:
    try:
        found: Any = importlib.import_module(module_name)
    except BaseException as error:  # sys.exit in a module is no reason for us to exit
        if isinstance(error, KeyboardInterrupt):
            raise
        raise ConfigError(f"module {module_name} cannot be imported: {type(error).__name__}: {error}") from error
    for part in function_name.split("."):
        if not hasattr(found, part):
            known = sorted(name for name, value in vars(found).items() if inspect.isfunction(value))
            raise ConfigError(
                f"{module_name} has no function {function_name}" + (f" (it has: {', '.join(known)})" if known else "")
            )
        found = getattr(found, part)
    return found


def _mode(chosen: config.Topic, function: Callable[..., Any]) -> ExecutionMode:
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
    if chosen.isolation == "process":
        return ExecutionMode.PROCESS
    return ExecutionMode.ASYNC if is_async else ExecutionMode.THREAD


def _annotated(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return where the annotations are: of a partial its function, of an object that can be called the method that calls it."""
    while isinstance(function, partial):
        function = function.func
    return function if inspect.isroutine(function) or inspect.isclass(function) else type(function).__call__


def _signature(name: str, function: Callable[..., Any]) -> tuple[int, Any]:
    """Return how many of payload and context a function takes, and the type of the first; Any if it has none."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
        hints = get_type_hints(_annotated(function), include_extras=True)
    except Exception as error:
        raise ConfigError(f"the signature of {name} cannot be read: {error}") from error
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [
        p for p in parameters if p.default is p.empty and p.kind is not p.VAR_POSITIONAL and p.kind is not p.VAR_KEYWORD
    ]
    if len(required) > 2 or any(p.kind is p.KEYWORD_ONLY for p in required):  # noqa: PLR2004 - payload and context
        raise ConfigError(
            f"{name} needs {len(required)} arguments: a handler takes the payload and, if it likes, a context"
        )
    wanted = [hints.get(each.name, Any) for each in positional[:2]]
    if wanted and _is_a_context(wanted[0]):
        raise ConfigError(
            f"{name} gets the payload first, and then the context: {positional[0].name} is the wrong way round"
        )
    if len(wanted) > 1 and not _takes_a_context(positional[1], wanted[1]):
        raise ConfigError(
            f"{name} gets the context as its second argument, and {positional[1].name} is none: annotate it as Context, or let it be "
            "keyword-only"
        )
    return len(wanted), wanted[0] if wanted else Any


def _takes_a_context(second: inspect.Parameter, wanted: Any) -> bool:
    """Whether a context fits what a second parameter says of itself. One without an annotation takes any."""
    if wanted is Any:
        return second.default in (second.empty, None)
    if get_origin(wanted) is Annotated:
        return _takes_a_context(second, get_args(wanted)[0])
    if get_origin(wanted) in (Union, UnionType):
        return any(_takes_a_context(second, each) for each in get_args(wanted))
    if not inspect.isclass(wanted):
        return isinstance(wanted, TypeVar)
    return _is_a_context(wanted) or wanted is object or getattr(wanted, "_is_protocol", False)


def _is_a_context(wanted: Any) -> bool:
    return inspect.isclass(wanted) and issubclass(wanted, Context | BatchContext)


def _adapter(name: str, wanted: Any) -> TypeAdapter[Any] | None:
    try:
        return None if wanted is Any else TypeAdapter(wanted)
    except Exception as error:
        raise ConfigError(f"the payload type of {name} cannot be validated: {error}") from error
