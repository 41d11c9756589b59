"""docs/publishing.md, docs/exactly-once.md and docs/testing.md.

A reader who types them sees what they show, and they name everything that exists.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from pgrouse import testing
from pgrouse.testing import Attempt
from tests.docs.address import address
from tests.docs.conftest import RunPage
from tests.docs.environment import fresh_environment
from tests.docs.page import Page
from tests.docs.reader import Reader, steady
from tests.server.postgres import Database

PUBLISHING, TESTING, EXACTLY_ONCE = Page("docs/publishing.md"), Page("docs/testing.md"), Page("docs/exactly-once.md")
# Plugins that are installed here for other tests, and take longer to import than this one takes.
WITHOUT = [f"-pno:{name}" for name in ("cacheprovider", "schemathesis", "django", "hypothesispytest", "xdist", "anyio")]
# The width of columns.
VARIES = ((r"-{3,}", "-"), (r" +", " "))


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(600)  # a registry may be slow
@pytest.mark.parametrize("page", [PUBLISHING, EXACTLY_ONCE], ids=["publishing", "exactly once"])
def test_a_reader_who_types_the_page_sees_what_it_shows(
    page: Page, database: Database, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    blocks = [block for block in page.blocks if " " in block.kind]
    reader = Reader(tmp_path, database, eventually, environment=fresh_environment(tmp_path, page))
    # As the page says it, and as all the drivers take it.
    reader.env["PGROUSE_DSN"] = address(database.dsn)

    try:
        done = [(block.line, steady(reader.follow(block), VARIES)) for block in blocks]
    finally:
        reader.stop()

    assert len(blocks) > 8
    assert done == [(block.line, steady(block.text, VARIES)) for block in blocks]


def test_the_examples_of_testing_run(run_page: RunPage) -> None:
    run_page(TESTING, 4)


SHOP_TABLES = """
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "shop_order"
    id: Mapped[int] = mapped_column(primary_key=True)
"""
TEST_OF_TABLES = """
import psycopg


def test_the_tables_of_the_application_are_there(pgrouse_database):
    with psycopg.connect(pgrouse_database) as conn:
        conn.execute("INSERT INTO shop_order VALUES (1)")
"""


@pytest.mark.long
@pytest.mark.parametrize("is_shared", [False, True])
def test_the_test_with_fixtures_passes(database: Database, tmp_path: Path, is_shared: bool) -> None:
    blocks = [block.text for block in TESTING.section("Fixtures for pytest").blocks if block.kind == "python"]
    test, conftest, shared = blocks
    (tmp_path / "test_points.py").write_text(test)
    (tmp_path / "test_tables.py").write_text(TEST_OF_TABLES)
    (tmp_path / "conftest.py").write_text(conftest + ("\n\n" + shared if is_shared else ""))
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "database.py").write_text(SHOP_TABLES)
    command = [sys.executable, "-m", "pytest", "-q", *WITHOUT, "."]
    env = {**os.environ, "PGROUSE_TEST_DSN": database.dsn}

    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


@pytest.mark.long
def test_the_test_of_unittest_passes(database: Database, tmp_path: Path) -> None:
    [block] = [block for block in TESTING.section("A database").blocks if block.kind == "python"]
    test = """
    def test_each_has_its_own(self):
        with psycopg.connect(self.dsn) as conn:
            conn.execute("INSERT INTO shop_order VALUES (1)")

    test_each_has_its_own_too = test_each_has_its_own
"""
    (tmp_path / "test_orders.py").write_text(block.text + test)
    env = {**os.environ, "PGROUSE_TEST_DSN": database.dsn}

    command = [sys.executable, "-m", "unittest", "-v", "test_orders"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert "Ran 2 tests" in done.stderr


def test_every_name_of_pgrouse_testing_is_documented() -> None:
    assert {name for name in testing.__all__ if f"`{name}" not in TESTING.prose} == set()


def test_every_attribute_of_an_attempt_is_documented_and_no_other() -> None:
    rows = TESTING.section("The queue, until nothing is ready").rows()
    documented = {name for row in rows if len(row) == 3 for name in re.findall(r"`(\w+)`", row[0])}

    assert documented >= {field.name for field in fields(Attempt)} | {"succeeded"}
