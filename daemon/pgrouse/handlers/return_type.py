"""The type that a function returns, by its annotation: what was kept of it as JSON comes back in this type."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Awaitable, Callable
from functools import lru_cache, partial, reduce
from types import SimpleNamespace, UnionType
from typing import Any, Never, NoReturn, Union, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from pgrouse.handlers.outcome import Outcome
from pgrouse.handlers.validation import list_problems


class ReturnType:
    """A type in which results that are kept as JSON come back.

    Args:
        wanted: the type; Any = as JSON gives it.

    Raises:
        TypeError: pydantic cannot validate it.
    """

    def __init__(self, wanted: Any) -> None:
        self._wanted = wanted
        try:
            self._adapter = _adapter(wanted)
        except Exception as error:  # noqa: BLE001 - building a type runs the user's code
            reason, *_ = str(error).splitlines() or [""]
            raise TypeError(
                f"{self} cannot be validated: {reason}: use a pydantic model, a dataclass, a TypedDict or plain types"
            ) from None

    def __str__(self) -> str:
        wanted = self._wanted
        return wanted.__qualname__ if isinstance(wanted, type) and not get_args(wanted) else str(wanted)

    def read(self, text: str) -> Any:
        """Return JSON in this type.

        Raises:
            ValueError: it does not match; with the problems, without the values.
        """
        try:
            return self._adapter.validate_json(text)
        except ValidationError as error:
            raise ValueError(list_problems(error)) from None


def find_return_type(function: Callable[..., Any], *, is_batch: bool = False) -> ReturnType:
    """Return the type that a call of a function returns, awaited and without outcomes; Any if it has no annotation.

    A class returns itself. A batch handler returns a list of what it returns for each message.

    Raises:
        TypeError: the annotation cannot be read, or is not a type that pydantic can validate.
    """
    called = _unwrap(function)
    if isinstance(called, type):
        return ReturnType(called)
    wanted = _without_outcomes(_awaited(_annotation(called)))
    return ReturnType(_without_outcomes(_element(wanted)) if is_batch else wanted)


def _unwrap(function: Callable[..., Any]) -> Any:
    """Return the function that has the annotations: of a partial, its function; of a callable object, its method."""
    while isinstance(function, partial):
        function = function.func
    unwrapped = inspect.unwrap(function)
    if inspect.isroutine(unwrapped) or isinstance(unwrapped, type):
        return unwrapped
    return type(unwrapped).__call__


def _annotation(function: Any) -> Any:
    """Evaluate this annotation alone: those of the arguments may name what only type checkers import."""
    try:
        annotation = getattr(function, "__annotations__", {}).get("return", Any)
        alone = SimpleNamespace(__annotations__={"return": annotation})
        return get_type_hints(alone, getattr(function, "__globals__", {}), include_extras=True)["return"]
    except Exception as error:  # noqa: BLE001 - evaluating it may raise anything
        raise TypeError(
            f"the return annotation of {function.__qualname__} cannot be read: {error}: "
            "import what it names at run time too, not only for type checkers"
        ) from None


def _awaited(wanted: Any) -> Any:
    origin = get_origin(wanted)
    is_awaitable = isinstance(origin, type) and issubclass(origin, Awaitable)
    return get_args(wanted)[-1] if is_awaitable else wanted


def _without_outcomes(wanted: Any) -> Any:
    alternatives = get_args(wanted) if get_origin(wanted) in (Union, UnionType) else (wanted,)
    kept = [each for each in alternatives if not _is_no_result(each)]
    if len(kept) == len(alternatives):
        return wanted
    return reduce(operator.or_, kept) if kept else Any


def _is_no_result(wanted: Any) -> bool:
    return wanted in (Never, NoReturn) or (isinstance(wanted, type) and issubclass(wanted, Outcome))


def _element(wanted: Any) -> Any:
    """Return the type of the elements, if there is one list among the alternatives; otherwise Any."""
    alternatives = get_args(wanted) if get_origin(wanted) in (Union, UnionType) else (wanted,)
    elements = [get_args(each)[0] for each in alternatives if get_origin(each) is list]
    return elements[0] if len(elements) == 1 else Any


def _adapter(wanted: Any) -> TypeAdapter[Any]:
    try:
        return _kept_adapter(wanted)
    except TypeError:  # not every annotation has a hash
        return TypeAdapter(wanted)


@lru_cache(maxsize=256)
def _kept_adapter(wanted: Any) -> TypeAdapter[Any]:
    return TypeAdapter(wanted)
