"""docs/reference/encryption.md: its examples run."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from pgrouse.config.crypto import CryptoSettings
from tests.docs.conftest import RunPage
from tests.docs.page import Page

PAGE = Page("docs/reference/encryption.md")


def test_the_examples_run(run_page: RunPage) -> None:
    run_page(PAGE, 5)


@pytest.mark.parametrize("block", [block for block in PAGE.blocks if block.kind == "toml"], ids=lambda b: str(b.line))
def test_the_tables_are_accepted_by_the_configuration(block: Any) -> None:
    given = tomllib.loads(block.text)["crypto"]

    CryptoSettings.model_validate(given)
