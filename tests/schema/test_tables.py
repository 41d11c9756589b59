"""The tables that the migrations create are those of tables.txt: nothing is removed or added unnoticed."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.schema.tables import PAGE, tables


@pytest.mark.every_server
def test_the_tables_are_those_of_the_file(db: psycopg.Connection[Any]) -> None:
    installed, written = set(tables(db)), set(PAGE.read_text().splitlines())

    assert sorted(installed - written) == [], "migrations add this: run `python -m tests.schema.tables` if they should"
    assert sorted(written - installed) == [], "migrations lack this: run `python -m tests.schema.tables` if they should"
