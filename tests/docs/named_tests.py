"""Tests that pages name as `folder/test_file.py::test_name`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

from tests.docs.page import ROOT


def named(cell: str) -> list[str]:
    """Return the tests named in a cell of a table."""
    return re.findall(r"`([^`]+)`", cell)


@cache
def promised() -> set[tuple[str, str]]:
    """Return the path and the function of each test that shows a promise."""
    names = re.findall(r"`([\w/]+\.py)::(\w+)`", (ROOT / "docs/development/promises.md").read_text())
    return {(str(ROOT / "tests" / path), function) for path, function in names}


def is_there(name: str) -> bool:
    """Return whether such a test exists."""
    path, _, function = name.partition("::")
    file = ROOT / "tests" / path
    return file.exists() and re.search(rf"^ *(async )?def {function}\(", file.read_text(), re.MULTILINE) is not None


def is_long(name: str) -> bool:
    """Return whether `./go test --full` leaves the test out: it, its class or its file is marked `long`.

    A case alone may be.
    """
    path, _, function = name.partition("::")
    return any(re.search(r"\bmark\.long\b", ast.unparse(mark)) for mark in _marks(_parse(path), function))


@cache
def _parse(path: str) -> ast.Module:
    return ast.parse((ROOT / "tests" / path).read_text())


def _marks(tree: ast.Module, function: str) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == function:
            yield from (each for each in node.decorator_list if "parametrize" not in ast.unparse(each))
        if isinstance(node, ast.ClassDef) and any(getattr(each, "name", "") == function for each in node.body):
            yield from node.decorator_list
        if isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node.targets[0]):
            yield node.value
