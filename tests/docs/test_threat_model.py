"""SECURITY.md describes what each party may do; what it cannot do is shown by existing tests."""

from __future__ import annotations

from tests.docs.named_tests import is_there, named
from tests.docs.page import Page

ROWS = [row for row in Page("SECURITY.md").rows() if len(row) == 2]


def test_every_limit_of_an_attacker_is_shown_by_a_test() -> None:
    silent = [row[0] for row in ROWS if not (row[0].startswith("**") or named(row[1]))]

    assert ROWS
    assert silent == []


def test_every_named_test_exists() -> None:
    missing = [name for row in ROWS for name in named(row[1]) if not is_there(name)]

    assert missing == []
