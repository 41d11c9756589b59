"""Which context a handler gets, and whether its second parameter is annotated with it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from pgrouse.errors import ConfigError
from pgrouse.handlers.batch.batch_context import AsyncBatchContext, BatchContext, SharedBatchContext
from pgrouse.handlers.context import AsyncContext, Context, SharedContext

# The context of a handler, by whether it is async and whether it takes batches.
CONTEXTS: dict[tuple[bool, bool], type] = {
    (False, False): Context,
    (True, False): AsyncContext,
    (False, True): BatchContext,
    (True, True): AsyncBatchContext,
}


def check_second_parameter(function: Callable[..., Any], second: inspect.Parameter, *, is_batch: bool) -> None:
    """Check the annotation of a second parameter, as far as it can be evaluated while its module is imported.

    Raises:
        TypeError: it is another context than the one that the handler gets.
    """
    wanted = _evaluated(second.annotation, getattr(annotated_function(function), "__globals__", {}))
    if any(map(is_a_context, alternatives_of(wanted))):
        try:
            check_context(function.__qualname__, second, wanted, is_async_function(function), is_batch)
        except ConfigError as error:
            raise TypeError(str(error)) from None


def _evaluated(annotation: Any, names: dict[str, Any]) -> Any:
    try:
        alone = SimpleNamespace(__annotations__={"second": annotation})
        return get_type_hints(alone, names, include_extras=True)["second"]
    except Exception:  # noqa: BLE001 - evaluating it may raise anything; what it names may follow below the handler
        return Any


def check_context(name: str, second: inspect.Parameter, wanted: Any, is_async: bool, is_batch: bool) -> None:
    """Check that the context matches the annotation and the name of a second parameter."""
    context, alternatives = CONTEXTS[is_async, is_batch], alternatives_of(wanted)
    if any(_fits(second, each, context) for each in alternatives):
        return
    if found := next(filter(is_a_context, alternatives), None):
        kind = ("async" if is_async else "not async") + (" and takes batches" if is_batch else "")
        raise ConfigError(f"{name} is {kind}: annotate {second.name} as {context.__name__}, not as {found.__name__}")
    raise ConfigError(
        f"{name} gets the context as its second argument, and {second.name} is none: "
        f"annotate it as {context.__name__}, or let it be "
        "keyword-only"
    )


def alternatives_of(wanted: Any) -> list[Any]:
    """Return the types that an annotation permits, without their parameters."""
    if get_origin(wanted) is Annotated:
        return alternatives_of(get_args(wanted)[0])
    if get_origin(wanted) in (Union, UnionType):
        return [found for each in get_args(wanted) for found in alternatives_of(each)]
    return [get_origin(wanted) or wanted]


def _fits(second: inspect.Parameter, wanted: Any, context: type) -> bool:
    """Whether a second parameter accepts a context. A parameter without an annotation accepts any."""
    if wanted is Any:
        return second.default in (second.empty, None)
    if not inspect.isclass(wanted):
        return isinstance(wanted, TypeVar)
    return getattr(wanted, "_is_protocol", False) or issubclass(context, wanted)


def is_a_context(wanted: Any) -> bool:
    """Whether this is the class of a context, of any kind."""
    return inspect.isclass(wanted) and issubclass(wanted, SharedContext | SharedBatchContext)


def is_async_function(function: Callable[..., Any]) -> bool:
    """Whether a call of a function is to be awaited."""
    call = getattr(function, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def annotated_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that has the annotations: of a partial, its function; of a callable object, its method."""
    while isinstance(function, partial):
        function = function.func
    return function if inspect.isroutine(function) or inspect.isclass(function) else type(function).__call__
