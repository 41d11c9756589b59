"""Rules that hold for every module of the package: where it imports, and what its classes are called."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CHECKOUT = Path(__file__).parents[2]
SOURCES = (CHECKOUT / "daemon", CHECKOUT / "pipeline")
PYPROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
SQL_FOLDERS = ("sql", "pipeline", "examples", "bench", "docker")
REASON = re.compile(r"# noqa: PLC0415 - (?:extra (?P<extra>\w+)|slow to import: .+|the application's own)$")
# Modules that take a tenth of a second or more to import, and that most importers do without.
SLOW = {
    "pgrouse.alerts.process",
    "pgrouse.alerts.sinks",
    "pgrouse.cli.command_line",
    "pgrouse.terminal.rich_table",
    "pgrouse.client.connection.database",
    "pgrouse.config.config",
    "pgrouse.config.policy.own_policy",
    "pgrouse.logging.log",
    "structlog",
    "pgrouse.testing",
    "pgrouse.worker.worker",
    "psycopg",
    "pgrouse.config.duration",
    "pgrouse.handlers.declaration.context_kind",
    "pgrouse.handlers.declaration.discovery",
    "adbc_driver_postgresql",
    "pyspark_pgrouse.lake.options",
    "pyspark_pgrouse.lake.reader",
    "pyspark_pgrouse.publish.batch",
    "pyspark_pgrouse.publish.stream",
    "pyspark_pgrouse.read.archive_batch",
    "pyspark_pgrouse.read.archive_stream",
    "pyspark_pgrouse.read.payload_fields",
    "pyspark_pgrouse.read.ready_batch",
}


def modules() -> dict[str, Path]:
    """Return every module of the package."""
    found = {}
    for source in SOURCES:
        for file in source.rglob("*.py"):
            parts = file.relative_to(source).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


MODULES = modules()
brought_by = cache(packages_distributions)


@cache
def tree(file: Path) -> ast.Module:
    """Return a module as it is parsed, which takes a second for all of them."""
    return ast.parse(file.read_text())


def imported(statement: ast.Import | ast.ImportFrom) -> set[str]:
    """Return the modules that a statement imports."""
    if isinstance(statement, ast.Import):
        return {alias.name for alias in statement.names}
    assert statement.module is not None
    below = {f"{statement.module}.{alias.name}" for alias in statement.names} & MODULES.keys()
    return below or {statement.module}


@cache
def imports_in_functions() -> list[tuple[str, str, str]]:
    """Return the place, the line and the module of each import inside a function.

    Not while tests are collected: it takes seconds.
    """
    return list(_imports_in_functions())


def _imports_in_functions() -> Iterator[tuple[str, str, str]]:
    for file in MODULES.values():
        lines = file.read_text().splitlines()
        functions = [n for n in ast.walk(tree(file)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
        inside = {n.lineno: n for f in functions for n in ast.walk(f) if isinstance(n, ast.Import | ast.ImportFrom)}
        for number, statement in inside.items():
            for module in imported(statement):
                yield f"{file.relative_to(CHECKOUT)}:{number}", lines[number - 1], module


def for_extras() -> Iterator[tuple[str, str, str]]:
    """Yield the place, the extra and the module of each import that is for an extra."""
    for place, line, module in imports_in_functions():
        reason = REASON.search(line)
        if reason is not None and reason["extra"]:
            yield place, reason["extra"], module


@cache
def at_the_top(module: str) -> frozenset[str]:
    """Return what a module of the package imports when it is imported."""
    found: set[str] = set()
    nodes: list[ast.stmt] = list(tree(MODULES[module]).body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= imported(node)
        elif isinstance(node, ast.Try):
            nodes += node.body
    return frozenset(found)


def packages_of(module: str) -> set[str]:
    """Return the packages of others that are imported with a module, directly and through the package."""
    seen: set[str] = set()
    left = [module]
    while left:
        each = left.pop()
        if each not in seen:
            seen.add(each)
            left += at_the_top(each) if each in MODULES else ()
    return {each.partition(".")[0] for each in seen if each not in MODULES}


@cache
def installed_by(*requirements: str) -> frozenset[str]:
    """Return the distributions that these requirements install, with all that they need."""
    found: dict[str, set[str]] = defaultdict(set)
    left = [(Requirement(each), {""}) for each in requirements]
    while left:
        each, wanted_for = left.pop()
        name, extras = canonicalize_name(each.name), {"", *each.extras}
        needed = each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in wanted_for)
        if needed and not extras <= found[name]:
            found[name] |= extras
            left += [(Requirement(text), extras) for text in requirements_of(name)]
    return frozenset(name for name, extras in found.items() if extras)


def requirements_of(distribution: str) -> list[str]:
    """Return the requirements of a distribution; none if it is not installed, as on another platform."""
    try:
        return requires(distribution) or []
    except PackageNotFoundError:
        return []


def test_an_import_inside_a_function_gives_a_reason() -> None:
    without = [f"{place}: {module}" for place, line, module in imports_in_functions() if not REASON.search(line)]

    assert without == []


def test_one_for_an_extra_needs_what_only_that_extra_installs() -> None:
    found = list(for_extras())

    assert len(found) > 10
    assert [place for place, extra, module in found if not needs(module) & only_in(extra)] == []


def only_in(extra: str) -> frozenset[str]:
    """Return the distributions that only this extra installs."""
    return installed_by(*PROJECT["optional-dependencies"][extra]) - installed_by(*PROJECT["dependencies"])


def needs(module: str) -> set[str]:
    """Return the distributions that are imported with a module."""
    return {canonicalize_name(name) for package in packages_of(module) for name in brought_by().get(package, ())}


def test_those_that_are_slow_are_known() -> None:
    assert {module for _, line, module in imports_in_functions() if "slow to import" in line} == SLOW


def test_the_application_brings_django_only() -> None:
    assert {module for _, line, module in imports_in_functions() if "the application's own" in line} == {"django.db"}


def test_no_two_classes_have_the_same_name() -> None:
    places = defaultdict(list)
    for module, file in MODULES.items():
        for node in ast.walk(tree(file)):
            # Options of a model or form of Django are in a class of this name inside of it.
            if isinstance(node, ast.ClassDef) and node.name != "Meta":
                places[node.name].append(module)

    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_line_of_sql_is_longer_than_one_of_python_may_be() -> None:
    most = PYPROJECT["tool"]["ruff"]["line-length"]
    files = [file for folder in SQL_FOLDERS for file in sorted((CHECKOUT / folder).rglob("*.sql"))]

    found = [
        f"{file.relative_to(CHECKOUT)}:{number}: {len(line)} characters"
        for file in files
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if len(line) > most
    ]

    assert len(files) > 200
    assert found == [], "\n".join(found)
