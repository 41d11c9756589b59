"""docs/lake-tutorial.md works, from top to bottom."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyspark_pgrouse.java import java_home
from tests.docs.page import Page
from tests.docs.reader import BUSY, Reader, steady
from tests.pipeline.quick_spark import quick_spark
from tests.server.postgres import Database

# One server is enough: Spark starts five times.
pytestmark = [
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.timeout(400),
    pytest.mark.parametrize("server", ["15"], indirect=True),
]

PAGE = Page("docs/lake-tutorial.md")
# The next export would omit rows that a transaction of another session still hides.
HIDDEN = """
    SELECT count(*) FROM messages.message_archive WHERE archive_xid >= pg_snapshot_xmin(pg_current_snapshot())
"""
# Parts that differ from run to run: the folder, days, names of files, speeds.
VARIES = (
    (r"/[^ ]*/(lake|report)\b", r"/FOLDER/\1"),
    (r"\d{4}-\d\d-\d\d", "DAY"),
    (r"(part-\d{5})-[0-9a-f]{32}-[0-9a-f]{12}", r"\1-ATTEMPT"),
    (r"[\d,]+ a second", "SPEED"),
)


@pytest.fixture
def reader(tmp_path: Path, database: Database, eventually: Callable[..., Any]) -> Iterator[Reader]:
    reader = Reader(tmp_path, database, eventually, f"SELECT ({BUSY}) + ({HIDDEN})")
    reader.env |= quick_spark(tmp_path / ".spark", **{"spark.master": "local[2]"}) | _java()
    yield reader
    reader.stop_the_daemon()


def test_the_tutorial_prints_what_it_shows_from_top_to_bottom(reader: Reader) -> None:
    blocks = [block for block in PAGE.blocks if " " in block.kind]

    done = [(block.line, steady(reader.follow(block), VARIES)) for block in blocks]

    assert len(blocks) > 8
    assert done == [(block.line, steady(block.text, VARIES)) for block in blocks]


def _java() -> dict[str, str]:
    home = java_home() or os.environ.get("JAVA_HOME")
    return {} if home is None else {"JAVA_HOME": home}
