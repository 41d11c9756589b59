"""The tables of policy settings in the reference are those of the code."""

from __future__ import annotations

import pytest

from tests.docs.page import Page
from tests.docs.policy_settings import PAGE, TABLES, rows


@pytest.mark.parametrize("section", TABLES)
def test_the_table_matches_the_settings(section: str) -> None:
    written = [tuple(row) for row in Page(PAGE).section(section).rows()]
    _, *expected = rows(TABLES[section])

    assert [row for row in expected if row not in written] == [], "run `python -m tests.docs.policy_settings`"
    assert written == expected
