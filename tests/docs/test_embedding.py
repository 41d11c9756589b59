"""docs/embedding.md: its examples run, and it names everything that exists."""

from __future__ import annotations

import ast
import inspect
import re

from pgrouse import Worker
from pgrouse.web import app
from tests.docs.conftest import RunPage
from tests.docs.page import Page

PAGE = Page("docs/embedding.md")


def test_the_examples_run(run_page: RunPage) -> None:
    run_page(PAGE, 3)


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
