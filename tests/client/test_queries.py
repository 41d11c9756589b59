"""One door to the tables: only `client/` has statements on them, and what people use reads and writes through it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
FOLDERS = [
    *(CHECKOUT / "daemon" / "pgrouse" / name for name in ("web", "cli", "metrics", "contrib", "alerts")),
    CHECKOUT / "pipeline",
]
# It proves what it shows by statements of its own.
DEMO = CHECKOUT / "daemon" / "pgrouse" / "cli" / "demo"
# A relation after a key word, a function that is called, or a relation by its name.
STATEMENT = re.compile(
    r"\b(?:FROM|JOIN|INTO|UPDATE|ONLY|CALL|TABLE|COPY)\s+messages\.|\bmessages\.(?:\w+|\{\})\("
    r"|reg(?:class|proc|namespace)\('messages"
    r"|'messages\.\w+'::(?:pg_catalog\.)?regclass",
    re.IGNORECASE,
)


def texts(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each literal that is no docstring; what an f-string inserts is `{}`."""
    tree = ast.parse(file.read_bytes())
    parts: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            parts.add(node.value)
        if isinstance(node, ast.JoinedStr):
            parts.update(node.values)
            yield node.lineno, "".join(each.value if isinstance(each, ast.Constant) else "{}" for each in node.values)
        elif isinstance(node, ast.Constant) and node not in parts and isinstance(node.value, str | bytes):
            yield node.lineno, node.value if isinstance(node.value, str) else node.value.decode(errors="replace")


@cache
def statements() -> dict[str, list[int]]:
    """Return the lines of the statements on the tables, by file."""
    found: dict[str, list[int]] = {}
    for file in (file for folder in FOLDERS for file in sorted(folder.rglob("*.py")) if file.parent != DEMO):
        lines = [line for line, text in texts(file) if STATEMENT.search(text)]
        if lines:
            found[str(file.relative_to(CHECKOUT))] = lines
    return found


def test_the_front_ends_have_no_statements_on_the_tables() -> None:
    assert statements() == {}, "read and write through client/calls, or add a query to client/queries"


@pytest.mark.parametrize(
    ("code", "is_found"),
    [
        ("x = 'SELECT a FROM messages.topic AS t'", True),
        ("x = b'DELETE FROM messages.topic'", True),
        ("x = f'SELECT {a}\\n  from messages.{table} AS f'", True),
        ("x = f'{a} SELECT messages.now() AS now'", True),
        ("x = f'SELECT messages.{name}(1)'", True),
        ("x = ('UPDATE '\n     'messages.topic SET a = 1')", True),
        ("x = \"SELECT to_regclass('messages.topic')\"", True),
        ("x = \"SELECT to_regproc('messages.now')\"", True),
        ("x = b'COPY messages.message (a) FROM STDIN'", True),
        ("x = \"SELECT set_config('messages.actor', %s, true)\"", False),
        ("x = 'the view messages.topic'", False),
        ("x = '''3 messages. (A sentence.)'''", False),
        ("'''As of SELECT a FROM messages.topic.'''", False),
    ],
)
def test_a_statement_is_found_in_any_literal(tmp_path: Path, code: str, is_found: bool) -> None:
    file = tmp_path / "module.py"
    file.write_text(code)

    assert any(STATEMENT.search(text) for _, text in texts(file)) == is_found
