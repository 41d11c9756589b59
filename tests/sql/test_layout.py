"""Each function, trigger and view has its own file, a name of its own, a header that says what it is, and tests of its own."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pgrouse import schema

TESTS = Path(__file__).parent.parent
OBJECTS = sorted(
    (each for each in schema.scripts() if each.kind == "object"),
    key=lambda each: each.name,
)


def test_no_two_files_have_the_same_name_since_the_ledger_knows_them_by_it() -> None:
    names = Counter(each.name for each in schema.scripts())

    assert [name for name, times in names.items() if times > 1] == []


@pytest.mark.parametrize("each", OBJECTS, ids=lambda each: each.name)
def test_every_object_has_a_file_of_tests(each: schema.Script) -> None:
    assert list(TESTS.glob(f"*/test_{each.name}.py"))


@pytest.mark.parametrize("each", OBJECTS, ids=lambda each: each.name)
def test_every_object_begins_with_what_it_is_and_what_it_locks(each: schema.Script) -> None:
    header, what, text = each.text.decode().partition("CREATE OR REPLACE ")

    assert what
    assert header.startswith("-- ")
    assert text.startswith("VIEW") or "Locks" in header
    assert "VIEW" in text or "TRIGGER" in text or "Called by: " in header
