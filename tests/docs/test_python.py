"""docs/reference/python.md names everything that users import, and its examples run."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import sentry_sdk

import pgrouse
from pgrouse.client.client import Client
from pgrouse.publishing.publish import PublishOptions
from tests.docs.conftest import RunPage
from tests.docs.page import Page
from tests.server.postgres import Database

PAGE = Page("docs/reference/python.md")


def test_the_examples_run(run_page: RunPage) -> None:
    run_page(PAGE, 26)


def test_every_public_name_is_documented() -> None:
    prose = PAGE.prose

    assert [name for name in pgrouse.__all__ if f"`{name}`" not in prose and f"`{name}(" not in prose] == []


def test_every_attribute_of_a_context_is_documented_and_no_other() -> None:
    public = {name for name in dir(pgrouse.Context) if not name.startswith("_")}
    assert {name for name in dir(pgrouse.AsyncContext) if not name.startswith("_")} == public

    documented = {row[0].strip("`").partition("(")[0] for row in PAGE.section("Context").rows()}

    assert documented == public


def test_every_attribute_of_an_item_and_of_a_batchs_context_is_documented_and_no_other() -> None:
    for section, described in {"Item": pgrouse.Item, "BatchContext": pgrouse.BatchContext}.items():
        public = {name for name in dir(described) if not name.startswith("_")}

        documented = {name for row in PAGE.section(section).rows() for name in re.findall(r"`(\w+)(?=[`(])", row[0])}

        assert documented == public, section


def test_every_option_of_publish_is_documented_and_no_other() -> None:
    documented = {row[0].strip("`") for row in PAGE.section("Publishing").rows()}

    assert documented == {"payload", *PublishOptions.__annotations__}


def test_every_method_of_a_client_is_documented_and_no_other() -> None:
    public = {name for name in vars(Client) if not name.startswith("_")}

    documented = {name for row in PAGE.section("Operating").rows() for name in re.findall(r"`(\w+)\(", row[0])}

    assert documented == public


def test_every_attribute_of_an_ending_is_documented_and_no_other() -> None:
    public = {name for name in vars(pgrouse.MessageResult) if not name.startswith("_")}

    documented = {row[0].strip("`") for row in PAGE.section("Waiting for the end").rows()}

    assert documented == public


def test_the_example_of_sentry_reports_a_death_with_its_exception_and_its_breadcrumbs(database: Database) -> None:
    names: dict[str, Any] = {"Any": Any, "Awaitable": Awaitable, "Callable": Callable}
    (example,) = [block for block in PAGE.blocks if "import sentry_sdk" in block.text]
    exec(compile(example.text, PAGE.path, "exec"), names)
    sent: list[Any] = []
    raised = KeyError("missing")

    async def call_next() -> None:
        sentry_sdk.add_breadcrumb(message="of this attempt")
        raise raised

    with sentry_sdk.isolation_scope():
        client = sentry_sdk.Client(dsn="https://key@localhost/1", before_send=lambda event, hint: sent.append(event))
        sentry_sdk.get_global_scope().set_client(client)
        try:
            with suppress(KeyError):
                asyncio.run(names["sentry"](SimpleNamespace(topic="job"), call_next))
            for exception in (raised, None):
                names["report_death"](
                    pgrouse.Failure(7, "job", 2, 2, "expire", True, "lock_expired: too long", exception, None)
                )
        finally:
            sentry_sdk.get_global_scope().set_client(None)

    first, second = sent
    assert first["exception"]["values"][-1]["type"] == "KeyError"
    assert [each["message"] for each in first["breadcrumbs"]["values"]] == ["of this attempt"]
    assert (first["tags"]["topic"], first["contexts"]["message"]["id"]) == ("job", 7)
    assert second["message"] == "job: lock_expired: too long"
    assert not second["breadcrumbs"]["values"]
