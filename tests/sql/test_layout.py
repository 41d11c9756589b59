"""Each function, trigger and view is described in its head, in a file with its name, or below its only caller."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from pgrouse.database.install import schema

README = (Path(__file__).parents[2] / "sql/README.md").read_text()
# The comment above a function or view, what it is, its name, and its text.
PART = re.compile(r"((?:^--.*\n)*)^CREATE OR REPLACE (FUNCTION |VIEW )messages\.(\w+)([\s\S]*?;$)", re.MULTILINE)
OBJECTS = sorted((each for each in schema.scripts() if each.kind == "object"), key=lambda each: each.name)


def test_no_two_files_have_the_same_name_since_the_ledger_knows_them_by_it() -> None:
    names = Counter(each.name for each in schema.scripts())

    assert [name for name, times in names.items() if times > 1] == []


def test_a_file_has_the_object_of_its_name_and_below_it_only_objects_that_no_other_file_calls() -> None:
    texts = {each.name: re.sub(r"--.*", "", each.text.decode()) for each in OBJECTS}
    functions = {
        name: re.findall(r"^CREATE OR REPLACE FUNCTION messages\.(\w+)", text, re.MULTILINE)
        for name, text in texts.items()
    }

    called_elsewhere = [
        f"{helper} by {other}"
        for name, defined in functions.items()
        for helper in defined
        for other, text in texts.items()
        if name not in (helper, other) and re.search(rf"messages\.{helper}\b", text)
    ]

    assert called_elsewhere == []


def test_every_head_describes_the_object_and_its_locks() -> None:
    # A trigger that only calls a check is described above the function that checks.
    heads = {
        name: (head or each.text.decode(), what + rest)
        for each in OBJECTS
        for head, what, name, rest in PART.findall(each.text.decode())
    }

    assert len(heads) >= len(OBJECTS)
    assert {name: missing for name, parts in heads.items() if (missing := _missing(*parts))} == {}


def test_the_shared_settings_are_those_of_the_readme() -> None:
    texts = "".join(each.text.decode() for each in schema.scripts())
    section = README.partition("## Settings that functions share")[2]

    shared = set(re.findall(r"(?:current_setting|set_config)\(\s*'messages\.(\w+)'", texts))

    assert shared == set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))


def _missing(head: str, text: str) -> list[str]:
    """Return what the head of this object does not describe."""
    is_called = "RETURNS trigger" not in text and not text.startswith("VIEW")
    needs = {
        "what it is": head.startswith("-- "),
        "Locks": text.startswith("VIEW") or "Locks" in head,
        "Called by: ": not is_called or "Called by: " in head,
    }
    return [what for what, is_said in needs.items() if not is_said]
