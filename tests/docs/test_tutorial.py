"""docs/tutorial.md works, from top to bottom."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.environment import fresh_environment
from tests.docs.page import Page
from tests.docs.reader import Reader, steady
from tests.server.postgres import Database

pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.timeout(600)]
PAGE = Page("docs/tutorial.md")
# Parts that differ from run to run: times, ages, workers, and the width of their columns.
VARIES = (
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\+0000", "MOMENT"),
    (r"\b\d+(\.\d+)?(ms|s|m)\b", "TIME"),
    (r"\S+:\d+:[0-9a-f]{4}(/\d+)?", "WORKER"),
    (r"(WORKER +working .*TIME) +\S+ +\d+", r"\1 HOST PID"),
    (r" +", " "),
    (r"redriven from(\d)", r"redriven from \1"),
)


@pytest.fixture
def reader(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, empty_database: Database, eventually: Callable[..., Any]
) -> Iterator[Reader]:
    environment = fresh_environment(tmp_path_factory.mktemp("reader"), PAGE)
    reader = Reader(tmp_path, empty_database, eventually, environment=environment)
    yield reader
    reader.stop()


def test_the_tutorial_prints_what_it_shows_from_top_to_bottom(reader: Reader) -> None:
    blocks = [block for block in PAGE.blocks if " " in block.kind]

    done = [(block.line, steady(reader.follow(block), VARIES)) for block in blocks]

    assert len(blocks) > 8
    assert done == [(block.line, steady(block.text, VARIES)) for block in blocks]
