"""docs/embedding.md: its examples run, and it names everything that exists."""

from __future__ import annotations

import ast
import inspect
import re
from typing import Any

from pgrouse import Worker
from pgrouse.web import app
from tests.docs.page import Page
from tests.server.postgres import Database

PAGE = Page("docs/embedding.md")


def test_the_examples_run(database: Database) -> None:
    names: dict[str, Any] = {"dsn": database.dsn, "__name__": "example"}
    examples = [block for block in PAGE.blocks if block.kind == "python runnable"]

    for example in examples:
        exec(compile("\n" * example.line + example.text, PAGE.path, "exec"), names)

    assert len(examples) == 3


def test_the_other_examples_can_be_read() -> None:
    for block in PAGE.blocks:
        ast.parse(block.text)


def test_every_argument_and_method_of_a_worker_is_documented_and_no_other() -> None:
    arguments = {name for name in inspect.signature(Worker.__init__).parameters if name not in ("self", "options")}
    methods = {name for name in vars(Worker) if not name.startswith("_")}
    named = {
        name for row in PAGE.section("A worker").rows() for name in re.findall(r"`(?:await )?(\w+)(?=[`(])", row[0])
    }

    assert named - {"worker"} == arguments | methods


def test_every_argument_of_the_application_is_documented_and_no_other() -> None:
    named = {row[0].strip("`") for row in PAGE.section("The dashboard and the HTTP API").rows()}

    assert named == set(inspect.signature(app).parameters)
