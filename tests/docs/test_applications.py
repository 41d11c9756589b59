"""docs/publishing.md, docs/exactly-once.md and docs/testing.md: their examples run, and they name everything that exists."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields
from typing import Any

import pytest

from pgrouse import testing
from pgrouse.testing import Attempt
from tests.docs.page import Page
from tests.server.postgres import Database

PUBLISHING, TESTING, EXACTLY_ONCE = Page("docs/publishing.md"), Page("docs/testing.md"), Page("docs/exactly-once.md")
# What the page leaves to its reader: where the database is. In its own process: Django is configured once in a process.
BEGIN = """
import sys
from urllib.parse import urlencode
from psycopg.conninfo import conninfo_to_dict
from tests.drivers.callers import url as url_of
parts = conninfo_to_dict(sys.argv[1])
url = lambda scheme: url_of(sys.argv[1], scheme.partition("+")[2])
# In the form that asyncpg takes too.
dsn = f"postgresql:///{parts['dbname']}?" + urlencode({name: parts[name] for name in ("user", "host", "port", "password") if name in parts})
names = {"NAME": "dbname", "HOST": "host", "PORT": "port", "USER": "user", "PASSWORD": "password"}
database = {name: parts[ours] for name, ours in names.items() if ours in parts}
"""


@pytest.mark.parametrize(("page", "count"), [(PUBLISHING, 8), (EXACTLY_ONCE, 5)], ids=["publishing", "exactly once"])
def test_the_examples_run(database: Database, page: Page, count: int) -> None:
    examples = [block.text for block in page.blocks if block.kind == "python runnable"]
    run = "\n\n".join([BEGIN, *examples])

    done = subprocess.run([sys.executable, "-c", run, database.dsn], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert len(examples) == count


def test_the_examples_of_testing_run(database: Database) -> None:
    names: dict[str, Any] = {"dsn": database.dsn, "__name__": "example"}
    examples = [block for block in TESTING.blocks if block.kind == "python runnable"]

    for example in examples:
        exec(compile("\n" * example.line + example.text, TESTING.path, "exec"), names)

    assert len(examples) == 4


def test_every_name_of_pgrouse_testing_is_documented() -> None:
    assert {name for name in testing.__all__ if f"`{name}" not in TESTING.prose} == set()


def test_every_attribute_of_an_attempt_is_documented_and_no_other() -> None:
    rows = TESTING.section("The queue, until nothing is ready").rows()
    documented = {name for row in rows if len(row) == 3 for name in re.findall(r"`(\w+)`", row[0])}

    assert documented >= {field.name for field in fields(Attempt)} | {"succeeded"}
