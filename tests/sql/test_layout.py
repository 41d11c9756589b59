"""Each function, trigger and view has its own file, a name of its own, a header that says what it is, and tests of its own."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from pgrouse.install import schema

TESTS = Path(__file__).parent.parent
README = (TESTS.parent / "sql/README.md").read_text()
OBJECTS = sorted(
    (each for each in schema.scripts() if each.kind == "object"),
    key=lambda each: each.name,
)


def test_no_two_files_have_the_same_name_since_the_ledger_knows_them_by_it() -> None:
    names = Counter(each.name for each in schema.scripts())

    assert [name for name, times in names.items() if times > 1] == []


def test_every_object_has_a_file_of_tests() -> None:
    assert [each.name for each in OBJECTS if not list(TESTS.glob(f"*/test_{each.name}.py"))] == []


def test_every_object_begins_with_what_it_is_and_what_it_locks() -> None:
    assert OBJECTS
    assert {each.name: missing for each in OBJECTS if (missing := _missing(each))} == {}


def test_the_settings_that_functions_share_are_those_of_the_readme() -> None:
    texts = "".join(each.text.decode() for each in schema.scripts())
    section = README.partition("## Settings that functions share")[2]

    shared = set(re.findall(r"(?:current_setting|set_config)\(\s*'messages\.(\w+)'", texts))

    assert shared == set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))


def _missing(each: schema.Script) -> list[str]:
    """Return what is not said in the header of this object."""
    header, what, text = each.text.decode().partition("CREATE OR REPLACE ")
    needs = {
        "CREATE OR REPLACE": bool(what),
        "what it is": header.startswith("-- "),
        "Locks": text.startswith("VIEW") or "Locks" in header,
        "Called by: ": text.startswith("VIEW") or "TRIGGER" in text or "Called by: " in header,
    }
    return [what for what, is_said in needs.items() if not is_said]
