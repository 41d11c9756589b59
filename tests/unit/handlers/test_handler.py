"""Handlers: which functions are valid, how their payloads are read, and the errors of invalid ones."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, BaseModel, Field, TypeAdapter
from pydantic_core import PydanticCustomError

import pgrouse
from pgrouse.client.message import Message
from pgrouse.config import config
from pgrouse.errors import ConfigError
from pgrouse.handlers.call import to_call
from pgrouse.handlers.declaration import loader as handlers
from pgrouse.handlers.handler import ExecutionMode, Handler
from pgrouse.handlers.outcome import Reject
from pgrouse.handlers.single import Single
from pgrouse.testing.runtime import TestRuntime

Claimed = Callable[..., Message]

MODULE = """
import functools
from typing import Annotated

import pgrouse
import pydantic

class Order(pydantic.BaseModel):
    id: int
    lines: list[str] = []

class Shop:
    async def method(self, payload): ...
    async def given(self, payload, ctx): ...
    @staticmethod
    def static(payload): ...
    async def __call__(self, payload): ...

def none(): return "none"
def one(payload): return payload
def two(payload, context): return payload, context
def typed(order: Order): return order
def spare(payload, context, third=3): return third
def anything(*args): return args
def three(a, b, c): ...
def lone(ctx: pgrouse.Context): ...
def swapped(ctx: pgrouse.Context, payload): ...
def annotated(id: int, total: int = 5): ...
def annotated_at_length(id: int, total: Annotated[int, pydantic.Field(ge=0)]): ...
def defaulted(id, total=5): ...
def listed(id, total: list[pgrouse.Context]): ...
def perhaps(payload, ctx: "pgrouse.Context | None" = None): ...
def nothing_said(payload, ctx=None): ...
def any_object(payload, ctx: object): ...
def of_batches(payload, ctx: pgrouse.BatchContext): ...
async def with_sync_context(payload, ctx: pgrouse.Context): ...
def with_async_context(payload, ctx: "pgrouse.AsyncContext[int] | None" = None): ...
async def with_async(payload, ctx: pgrouse.AsyncContext[int]): ...
def with_either(payload, ctx: pgrouse.Context | pgrouse.AsyncContext): ...
def batch_with_async(payloads: list[int], ctx: pgrouse.AsyncBatchContext): ...
def batch_with_single(payloads: list[int], ctx: pgrouse.Context): ...
def generator(payload): yield payload
async def async_generator(payload): yield payload
def keyword(payload, *, when): ...
class Struct: pass
def struct(payload: Struct): ...
def optional_keyword(payload, *, when=1): return when
def unknown(payload: "Missing"): ...
def body(payload: bytes): return payload
def number(payload: Annotated[int, pydantic.Field(ge=0)]): return payload
async def coroutine(payload): ...
shop = Shop()
partly = functools.partial(two, context="c")
constant = 7
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "shop_jobs.py").write_text(MODULE)
    (tmp_path / "shop_broken.py").write_text("import nothing_of_that_name")
    (tmp_path / "shop_leaves.py").write_text("import sys; sys.exit(4)")
    (tmp_path / "pgrouse.toml").write_text("")
    before = list(sys.path)
    yield tmp_path
    sys.path[:] = before
    for name in [name for name in sys.modules if name.startswith("shop_")]:
        del sys.modules[name]


@pytest.fixture
def find(folder: Path) -> Callable[..., Handler]:
    """`find("typed")` is the handler of that function of the module."""

    def find(name: str, **chosen: Any) -> Handler:
        full = name if ":" in name else f"shop_jobs:{name}"
        sys.path.insert(0, str(folder))
        return handlers.find_handler(
            "job", config.TopicSettings(handler=full, **chosen), config.HandlersSettings(import_path=[folder])
        )

    return find


class TestSignature:
    @pytest.mark.parametrize(
        ("name", "arguments"),
        [
            ("none", 0),
            ("one", 1),
            ("two", 2),
            ("typed", 1),
            ("spare", 2),
            ("optional_keyword", 1),
            ("Shop.static", 1),
            ("shop", 1),
            ("partly", 1),
            ("perhaps", 2),
            ("nothing_said", 2),
            ("any_object", 2),
            ("with_async", 2),
            ("with_either", 2),
        ],
    )
    def test_a_handler_gets_as_many_arguments_as_it_takes(
        self, find: Callable[..., Handler], name: str, arguments: int
    ) -> None:
        assert find(name).arguments == arguments

    @pytest.mark.parametrize(("name", "count"), [("three", 3), ("keyword", 2)])
    def test_a_handler_with_more_required_arguments_is_refused(
        self, find: Callable[..., Handler], name: str, count: int
    ) -> None:
        with pytest.raises(ConfigError, match=f"shop_jobs:{name} needs {count} arguments"):
            find(name)

    @pytest.mark.parametrize(
        ("name", "chosen", "mode"),
        [
            ("one", {}, ExecutionMode.THREAD),
            ("coroutine", {}, ExecutionMode.ASYNC),
            ("shop", {}, ExecutionMode.ASYNC),
            ("shop.method", {}, ExecutionMode.ASYNC),
            ("one", {"isolation": "process"}, ExecutionMode.PROCESS),
            ("coroutine", {"isolation": "process"}, ExecutionMode.PROCESS),
        ],
    )
    def test_the_executor_follows_from_the_kind_of_function(
        self, find: Callable[..., Handler], name: str, chosen: dict[str, Any], mode: ExecutionMode
    ) -> None:
        assert find(name, **chosen).mode is mode

    def test_the_number_of_children_is_limited_by_default(self, find: Callable[..., Handler]) -> None:
        assert find("one", isolation="process").concurrency == 4
        assert find("one", isolation="process", concurrency=9).concurrency == 9
        assert find("one").concurrency is None


class TestRefused:
    @pytest.mark.parametrize(
        ("name", "reason"),
        [
            ("shop_jobs:onne", r"shop_jobs has no function onne \(it has: .*\bone\b"),
            ("shop_jobs:constant", "shop_jobs:constant is not a function: its type is int"),
            ("shop_jobs:unknown", "the signature of shop_jobs:unknown cannot be read: name 'Missing' is not defined"),
            (
                "shop_jobs:lone",
                "shop_jobs:lone gets the payload first, and then the context: ctx is the wrong way round",
            ),
            ("shop_jobs:swapped", "shop_jobs:swapped gets the payload first"),
            ("shop_jobs:annotated", "shop_jobs:annotated gets the context as its second argument, and total is none"),
            ("shop_jobs:annotated_at_length", "gets the context as its second argument, and total is none"),
            (
                "shop_jobs:defaulted",
                "gets the context as its second argument, and total is none: annotate it as Context",
            ),
            ("shop_jobs:listed", "gets the context as its second argument, and total is none"),
            (
                "shop_jobs:with_sync_context",
                "shop_jobs:with_sync_context is async: annotate ctx as AsyncContext, not as Context",
            ),
            (
                "shop_jobs:with_async_context",
                "shop_jobs:with_async_context is not async: annotate ctx as Context, not as AsyncContext",
            ),
            ("shop_jobs:of_batches", "is not async: annotate ctx as Context, not as BatchContext"),
            ("shop_jobs:generator", "shop_jobs:generator has a yield, so that a call of it does nothing"),
            ("shop_jobs:async_generator", "shop_jobs:async_generator has a yield"),
            (
                "shop_jobs:struct",
                "payload type of shop_jobs:struct cannot be validated: use a pydantic model, .* not Struct$",
            ),
            ("shop_broken:one", "module shop_broken cannot be imported: ModuleNotFoundError: .*nothing_of_that_name"),
            ("shop_leaves:one", "module shop_leaves cannot be imported: SystemExit: 4"),
            ("shop_nowhere:one", "there is no module shop_nowhere: none in a folder of handlers.import_path"),
            ("os:system", "module os may not be used: .*handlers.allowed_modules"),
            ("subprocess:run", "module subprocess may not be used"),
            ("pydantic:BaseModel", "module pydantic may not be used"),
        ],
    )
    def test_an_invalid_handler_is_refused_with_the_reason(
        self, find: Callable[..., Handler], name: str, reason: str
    ) -> None:
        with pytest.raises(ConfigError, match=reason):
            find(name)

    @pytest.mark.parametrize("name", ["batch_with_async", "batch_with_single"])
    def test_the_context_of_a_batch_is_one_of_batches(self, find: Callable[..., Handler], name: str) -> None:
        with pytest.raises(ConfigError, match="is not async and takes batches: annotate ctx as BatchContext, not as "):
            find(name, batch_size=10)

    def test_all_errors_are_reported_together_with_their_lines(self, folder: Path) -> None:
        (folder / "pgrouse.toml").write_text(
            '[topics.a]\nhandler = "shop_jobs:onne"\n[topics.b]\nhandler = "shop_jobs:one"\n[topics.c]\nhandler '
            '= "shop_broken:one"\n'
        )

        with pytest.raises(ConfigError) as refused:
            handlers.load(config.load(folder / "pgrouse.toml", environ={}))

        first, second = str(refused.value).splitlines()
        assert "pgrouse.toml:2: topics.a.handler: shop_jobs has no function onne" in first
        assert "pgrouse.toml:6: topics.c.handler: module shop_broken cannot be imported" in second


class TestContextKind:
    @pytest.mark.parametrize(
        ("name", "chosen", "kind"),
        [
            ("two", {}, pgrouse.Context),
            ("shop.given", {}, pgrouse.AsyncContext),
            ("with_async", {"isolation": "process"}, pgrouse.AsyncContext),
        ],
    )
    def test_an_async_handler_gets_an_async_context_wherever_it_runs(
        self, find: Callable[..., Handler], claimed: Claimed, name: str, chosen: dict[str, Any], kind: type
    ) -> None:
        call = to_call(find(name, **chosen), [claimed()], TestRuntime(None))

        returned = call.call()

        if hasattr(returned, "close"):
            returned.close()
        assert isinstance(call, Single)
        assert type(call.context) is kind


def called(handler: Handler, message: Message) -> Any:
    """What a handler returns for a message."""
    return to_call(handler, [message], TestRuntime(None)).call()


class TestPayload:
    def test_the_payload_of_a_handler_without_arguments_is_not_validated(
        self, find: Callable[..., Handler], claimed: Claimed
    ) -> None:
        assert called(find("none"), claimed(payload="[" * 2000 + "]" * 2000)) == "none"

    def test_errors_of_validators_are_reported_by_type_because_they_may_quote_the_value(self, claimed: Claimed) -> None:
        def refuse(value: str) -> str:
            raise ValueError(f"{value} is no card")

        def refuse_in_its_own_way(value: str) -> str:
            raise PydanticCustomError("no_card", "{value} is no card", {"value": value})

        def insist(value: str) -> str:
            raise AssertionError(value)

        class Paid(BaseModel):
            kind: Literal["paid"]

        class Sent(BaseModel):
            kind: Literal["sent"]

        class Order(BaseModel):
            a: Annotated[str, AfterValidator(refuse)]
            b: Annotated[str, AfterValidator(refuse_in_its_own_way)]
            c: Annotated[str, AfterValidator(insist)]
            d: Annotated[Paid | Sent, Field(discriminator="kind")]

        work = Handler("t", "m:f", print, ExecutionMode.THREAD, 1, TypeAdapter(Order))
        with pytest.raises(Reject) as rejected:
            called(work, claimed(payload='{"a": "4711", "b": "4711", "c": "4711", "d": {"kind": "4711"}}'))

        expected = "payload: a: value_error; b: no_card; c: assertion_error; d: union_tag_invalid"
        assert str(rejected.value) == expected

    def test_an_error_of_the_whole_payload_is_named_so(self, find: Callable[..., Handler], claimed: Claimed) -> None:
        with pytest.raises(Reject, match=r"payload: \(whole\): Input should be greater than or equal to 0"):
            called(find("number"), claimed(payload="-1"))
