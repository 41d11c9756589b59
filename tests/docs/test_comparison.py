"""docs/explanation/comparison.md: tests show each cell of pgrouse, and what it does not have is said."""

from __future__ import annotations

from tests.docs.named_tests import is_there, named
from tests.docs.page import Page

PAGE = Page("docs/explanation/comparison.md")
COMPARED, SHOWN = (
    [row for row in PAGE.rows() if row[0] and len(row) > 2],
    [row for row in PAGE.rows() if row[0] and len(row) == 2],
)
# Each is argued in the section "What pgrouse does not have".
MISSING = {
    "dependency injection": "dependency injection",
    "several arguments in a call": "Several arguments",
    "on PyPI": "A release on PyPI",
    "documentation": "documentation",
    "schema can be migrated back": "Migrations back",
    "databases other than PostgreSQL": "Another store than PostgreSQL",
}
# A feature that is not there has no test.
ABSENT = {
    "schema can be migrated back",
    "databases other than PostgreSQL",
}


def test_every_line_is_shown_by_tests_that_exist() -> None:
    assert [row[0] for row in SHOWN] == [row[0] for row in COMPARED if row[0] not in ABSENT]
    assert [row[0] for row in SHOWN if not named(row[1])] == []
    assert [name for row in SHOWN for name in named(row[1]) if not is_there(name)] == []


def test_what_others_have_and_pgrouse_has_not_is_argued() -> None:
    argued = PAGE.section("What pgrouse does not have").text
    missing = {row[0] for row in COMPARED if row[1].startswith("\N{EN DASH}") or "no site" in row[1]}

    assert missing == set(MISSING)
    assert [text for text in MISSING.values() if text not in argued] == []


def test_ten_others_are_compared_and_each_has_its_source() -> None:
    sources = PAGE.section("Sources").text
    heads = [row for row in PAGE.text.splitlines() if row.startswith("| | pgrouse |")]
    others = [name.strip() for head in heads for name in head.split("|")[3:-1]]

    assert len(others) >= 10
    assert [name for name in others if name.split(" ")[0] not in sources] == []
