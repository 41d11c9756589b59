"""The type of a result by the annotation of its function: JSON comes back in it, or the error says what to change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache, partial, wraps
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, Optional

import pytest
from pydantic import BaseModel, Field

from pgrouse import Fail, Reject, Retry
from pgrouse.handlers.return_type import find_return_type

if TYPE_CHECKING:
    from decimal import Context as OnlyForCheckers

ORDER = '{"id": 7}'


class Order(BaseModel):
    id: int


@dataclass
class Label:
    id: int


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any) -> Any:
        return function(*args)

    return call


class Maker:
    def __call__(self) -> Order:
        raise NotImplementedError

    def make(self) -> Label:
        raise NotImplementedError


def model() -> Order:
    raise NotImplementedError


async def awaited() -> Order:
    raise NotImplementedError


def a_coroutine() -> Coroutine[Any, Any, Order]:
    raise NotImplementedError


def an_awaitable() -> Awaitable[list[Label]]:
    raise NotImplementedError


def a_task() -> asyncio.Task[Order]:
    raise NotImplementedError


def outcomes() -> Order | Reject | Retry:
    raise NotImplementedError


def only_outcomes() -> Fail:
    raise NotImplementedError


def never() -> NoReturn:
    raise NotImplementedError


def optional() -> Optional[Order]:  # noqa: UP045 - the old form is another type at run time
    raise NotImplementedError


def limited() -> Annotated[int, Field(gt=3)]:
    raise NotImplementedError


def values() -> dict[datetime, Decimal]:
    raise NotImplementedError


def unchecked():  # type: ignore[no-untyped-def]
    raise NotImplementedError


def beside(context: OnlyForCheckers) -> Order:
    raise NotImplementedError


@logged
@lru_cache
def decorated() -> Order:
    raise NotImplementedError


def unknown() -> OnlyForCheckers:
    raise NotImplementedError


def no_type() -> asyncio.Event:
    raise NotImplementedError


def listed() -> list[Order | Reject] | None:
    raise NotImplementedError


def not_listed() -> None: ...


@pytest.mark.parametrize(
    ("function", "text", "value"),
    [
        (model, ORDER, Order(id=7)),
        (awaited, ORDER, Order(id=7)),
        (a_coroutine, ORDER, Order(id=7)),
        (an_awaitable, f"[{ORDER}]", [Label(7)]),
        (a_task, ORDER, Order(id=7)),
        (outcomes, ORDER, Order(id=7)),
        (only_outcomes, ORDER, {"id": 7}),
        (never, ORDER, {"id": 7}),
        (optional, "null", None),
        (optional, ORDER, Order(id=7)),
        (limited, "4", 4),
        (values, '{"2026-01-02T00:00:00Z": "1.10"}', {datetime(2026, 1, 2, tzinfo=UTC): Decimal("1.10")}),
        (unchecked, ORDER, {"id": 7}),
        (beside, ORDER, Order(id=7)),
        (decorated, ORDER, Order(id=7)),
        (partial(partial(model)), ORDER, Order(id=7)),
        (lambda: 7, ORDER, {"id": 7}),
        (Maker(), ORDER, Order(id=7)),
        (Maker().make, ORDER, Label(7)),
        (Label, ORDER, Label(7)),
        (set, "[1]", {1}),
        (print, ORDER, {"id": 7}),
    ],
)
def test_a_result_comes_back_in_the_type_that_its_function_returns(
    function: Callable[..., Any], text: str, value: object
) -> None:
    found = find_return_type(function).read(text)

    assert (found, type(found)) == (value, type(value))


def test_a_batch_handler_returns_a_list_of_results() -> None:
    assert find_return_type(listed, is_batch=True).read(ORDER) == Order(id=7)
    assert find_return_type(not_listed, is_batch=True).read(ORDER) == {"id": 7}


def test_a_result_of_another_type_is_an_error_without_its_value() -> None:
    with pytest.raises(ValueError, match=r"^id: Input should be a valid integer, unable to parse"):
        find_return_type(model).read('{"id": "secret"}')


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (
            unknown,
            r"annotation of unknown cannot be read: name 'OnlyForCheckers' is .* import what it names at run time",
        ),
        (no_type, r"^Event cannot be validated: Unable to generate .*: use a pydantic model, a dataclass"),
    ],
)
def test_an_annotation_that_cannot_be_used_is_an_error_with_the_fix(function: Callable[..., Any], says: str) -> None:
    with pytest.raises(TypeError, match=says):
        find_return_type(function)
