"""docs/reference/encryption.md: its examples run."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from pgrouse.config.crypto import CryptoSettings
from tests.docs.page import Page
from tests.server.postgres import Database

PAGE = Page("docs/reference/encryption.md")


def test_the_examples_run(database: Database) -> None:
    examples = [block for block in PAGE.blocks if block.kind.startswith("python runnable")]
    names: dict[str, Any] = {"dsn": database.dsn, "__name__": "example"}

    for example in examples:
        exec(compile("\n" * example.line + example.text, PAGE.path, "exec"), names)

    assert len(examples) == 5


@pytest.mark.parametrize("block", [block for block in PAGE.blocks if block.kind == "toml"], ids=lambda b: str(b.line))
def test_the_tables_are_accepted_by_the_configuration(block: Any) -> None:
    given = tomllib.loads(block.text)["crypto"]

    CryptoSettings.model_validate(given)
