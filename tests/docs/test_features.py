"""docs/features.md has every feature, and every test that it names is there."""

from __future__ import annotations

import re

from tests.docs.page import ROOT, Page

PAGE = Page("docs/features.md")
ROWS = PAGE.rows()


def test_every_feature_has_one_line_in_its_order() -> None:
    expected = [f"S{n}" for n in range(1, 50)] + [f"N{n}" for n in range(1, 19)]

    assert [row[0] for row in ROWS] == expected


def test_every_feature_names_a_test_or_says_not_yet() -> None:
    silent = [row[0] for row in ROWS if not (_tests(row[3]) or row[3] == "not yet")]

    assert silent == []


def test_every_test_that_is_named_is_there() -> None:
    missing = [f"{row[0]}: {name}" for row in ROWS for name in _tests(row[3]) if not _is_there(name)]

    assert missing == []


def _tests(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def _is_there(name: str) -> bool:
    path, _, function = name.partition("::")
    file = ROOT / "tests" / path
    return file.exists() and re.search(rf"^ *(async )?def {function}\(", file.read_text(), re.MULTILINE) is not None
