"""Tests that pages name as `folder/test_file.py::test_name`."""

from __future__ import annotations

import ast
import re
from functools import cache

from tests.docs.page import ROOT

Function = ast.FunctionDef | ast.AsyncFunctionDef


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
    return function in _functions(path)


@cache
def _functions(path: str) -> set[str]:
    file = ROOT / "tests" / path
    return {*re.findall(r"^ *(?:async )?def (\w+)\(", file.read_text(), re.MULTILINE)} if file.exists() else set()


def is_long(name: str) -> bool:
    """Return whether `./go test --full` leaves the test out: it, its class or its file is marked `long`.

    A case alone may be.
    """
    path, _, function = name.partition("::")
    return function in _long(path)


@cache
def _long(path: str) -> set[str]:
    """Return the names of the tests of a file that are marked `long`."""
    body = ast.parse((ROOT / "tests" / path).read_text()).body
    of_file = any("pytestmark" in ast.unparse(each) and _is_mark(each) for each in body if isinstance(each, ast.Assign))
    classes = [(each.body, of_file or _is_marked(each)) for each in body if isinstance(each, ast.ClassDef)]
    return {
        each.name
        for members, all_are in [(body, of_file), *classes]
        for each in members
        if isinstance(each, Function) and (all_are or _is_marked(each))
    }


def _is_marked(node: ast.ClassDef | Function) -> bool:
    return any(_is_mark(each) for each in node.decorator_list if "parametrize" not in ast.unparse(each))


def _is_mark(node: ast.AST) -> bool:
    return re.search(r"\bmark\.long\b", ast.unparse(node)) is not None
