"""Rules for every page: links lead somewhere, and no page has open tasks."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

from pydantic import ValidationError

from pgrouse.config.config import Config, load
from tests.docs.page import ROOT, Page, pages

PAGES = pages()


def test_every_link_leads_to_an_existing_file_and_heading() -> None:
    broken = [
        f"{page.name}:{line} {target}"
        for page in PAGES
        for line, target in page.links()
        if not _leads_somewhere(page, target)
    ]

    assert len(PAGES) > 50
    assert broken == []


def test_every_file_that_a_reader_saves_is_named_in_the_text() -> None:
    """The words behind a fence, which name it for the tests, are not shown."""
    nameless = [
        f"{page.name}:{block.line}: {name}"
        for page in PAGES
        for block in page.blocks
        for name in block.kind.split()[1:]
        if "." in name and f"`{name}`" not in page.prose
    ]

    assert nameless == []


def test_no_page_contains_a_todo() -> None:
    left = {
        page.name: found for page in PAGES if (found := re.findall(r"\bTO" r"DO\b|\b(?:TBD|FIXME|XXX)\b", page.text))
    }

    assert left == {}


def test_every_example_of_a_configuration_is_valid() -> None:
    wrong = {
        f"{page.name}:{block.line}": problem
        for page in PAGES
        for block in page.blocks
        if block.kind.startswith("toml") and (problem := _problem_of(block.text))
    }

    assert wrong == {}


def _problem_of(configuration: str) -> str | None:
    """Return the error of this configuration, None if it is valid."""
    try:
        Config.model_validate(tomllib.loads(configuration))
    except (ValidationError, tomllib.TOMLDecodeError) as error:
        return str(error)
    return None


def test_the_readme_has_the_defaults_of_the_code() -> None:
    rows = Page("README.md").section("Configuration").rows()
    found = {row[0].strip("`"): row[1].strip("`").strip('"') for row in rows if not row[0].startswith("`topics")}

    defaults = {key: _default(key) for key in found}

    assert len(found) > 5
    assert found == defaults


def _default(key: str) -> str:
    section, name = key.split(".")
    value = load(environ={}).model_dump(mode="json")[section][name]
    return "none" if value is None else str(value)


def _leads_somewhere(page: Page, target: str) -> bool:
    path, _, anchor = target.partition("#")
    file = (page.path.parent / path).resolve() if path else page.path
    if not file.is_relative_to(ROOT) or not file.exists():
        return False
    return not anchor or anchor in _anchors(file)


@cache
def _anchors(file: Path) -> set[str]:
    return Page(file).anchors()
