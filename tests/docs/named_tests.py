"""Tests that pages name as `folder/test_file.py::test_name`."""

from __future__ import annotations

import re

from tests.docs.page import ROOT


def named(cell: str) -> list[str]:
    """Return the tests named in a cell of a table."""
    return re.findall(r"`([^`]+)`", cell)


def is_there(name: str) -> bool:
    """Return whether such a test exists."""
    path, _, function = name.partition("::")
    file = ROOT / "tests" / path
    return file.exists() and re.search(rf"^ *(async )?def {function}\(", file.read_text(), re.MULTILINE) is not None
