"""Each function, trigger and view has its own file, a header that says what it is, and tests of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from pgrouse import schema

TESTS = Path(__file__).parent.parent
OBJECTS = sorted(
    (each for each in schema.scripts() if each.kind == "object"),
    key=lambda each: each.name,
)


@pytest.mark.parametrize("each", OBJECTS, ids=lambda each: each.name)
def test_every_object_has_a_file_of_tests(each: schema.Script) -> None:
    assert list(TESTS.glob(f"*/test_{Path(each.name).stem}.py"))


@pytest.mark.parametrize("each", OBJECTS, ids=lambda each: each.name)
def test_every_object_begins_with_what_it_is_and_what_it_locks(each: schema.Script) -> None:
    header = each.text.decode().split("CREATE OR REPLACE")[0]

    assert header.startswith("-- ")
    assert each.name.startswith("views/") or "Locks" in header
    assert not each.name.startswith("functions/") or "Called by: " in header
