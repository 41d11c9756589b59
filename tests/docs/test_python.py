"""docs/reference/python.md names everything that users import, and its examples run."""

from __future__ import annotations

import re
from typing import Any

import pgrouse
from pgrouse.client.client import Client
from pgrouse.handlers.context import Context
from pgrouse.publishing.publish import PublishOptions
from tests.docs.page import Page
from tests.server.postgres import Database

PAGE = Page("docs/reference/python.md")


def test_the_examples_run(database: Database) -> None:
    examples = [block for block in PAGE.blocks if block.kind.startswith("python runnable")]
    names: dict[str, Any] = {"dsn": database.dsn, "__name__": "example"}

    for example in examples:
        # Lines as in the page, so that a traceback points into it.
        exec(compile("\n" * example.line + example.text, PAGE.path, "exec"), names)

    assert len(examples) > 5


def test_every_public_name_is_documented() -> None:
    prose = PAGE.prose

    assert [name for name in pgrouse.__all__ if f"`{name}`" not in prose and f"`{name}(" not in prose] == []


def test_every_attribute_of_a_context_is_documented_and_no_other() -> None:
    public = {name for name in dir(Context) if not name.startswith("_")}

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
