"""One door to the tables: only `client/calls` and `client/queries` have statements on them; all others call these."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[2]
PACKAGE = CHECKOUT / "daemon" / "pgrouse"
FOLDERS = (PACKAGE, CHECKOUT / "pipeline")
# Folders and files of the package with statements of their own.
DOORS = {
    "client/call.py": "makes the calls of both",
    "client/calls": "a binding for each function",
    "client/queries": "all other reads and writes",
    "cli/demo": "proves what it shows",
    "database/install": "makes the tables, and keeps the ledger",
    "publishing/copy_rows.py": "publishes, below the client",
    "publishing/json_rows.py": "publishes, below the client",
    "publishing/publish_statement.py": "publishes, below the client",
    "publishing/schema_cache.py": "reads what a publish is checked by, on connections of any driver, below the client",
    "testing/clean.py": "empties the tables, as nothing else may",
    "testing/clock.py": "sets the queue's clock for a session of tests",
}
# A relation after a key word, a function that is called, or a relation by its name.
STATEMENT = re.compile(
    r"\b(?:FROM|JOIN|INTO|UPDATE|ONLY|CALL|TABLE|COPY|USING|LOCK|TRUNCATE)\s+messages\."
    r"|\bmessages\.(?:\w+|\{\})\(|sql\.Identifier\('messages'"
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
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "sql.Identifier":
            yield node.lineno, ast.unparse(node)
        if isinstance(node, ast.JoinedStr):
            parts.update(node.values)
            yield node.lineno, "".join(each.value if isinstance(each, ast.Constant) else "{}" for each in node.values)
        elif isinstance(node, ast.Constant) and node not in parts and isinstance(node.value, str | bytes):
            yield node.lineno, node.value if isinstance(node.value, str) else node.value.decode(errors="replace")


@cache
def statements() -> dict[Path, list[int]]:
    """Return the lines of the statements on the tables, by file."""
    files = (file for folder in FOLDERS for file in sorted(folder.rglob("*.py")))
    found = {file: [line for line, text in texts(file) if STATEMENT.search(text)] for file in files}
    return {file: lines for file, lines in found.items() if lines}


def test_all_statements_on_the_tables_are_behind_the_doors() -> None:
    doors = {PACKAGE / door for door in DOORS}
    others = {str(file): lines for file, lines in statements().items() if doors.isdisjoint({file, *file.parents})}

    assert others == {}, "read and write through client/calls, or add a query to client/queries"


def test_every_door_is_used() -> None:
    used = {each for file in statements() for each in (file, *file.parents)}

    assert [door for door in DOORS if PACKAGE / door not in used] == []


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
        ("x = 'LOCK messages.topic'", True),
        ('x = sql.Identifier("messages", table)', True),
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
