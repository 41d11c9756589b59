"""`python -m tests.size`: lines of code by folder, and those of the tests of each.

Blank lines, comments and docstrings do not count.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARTS = ("daemon/pgrouse", "pipeline/pyspark_pgrouse", "sql", "tests")
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def table(root: Path) -> str:
    """Return a block for each part of the tree: its sum, then its folders, the largest first.

    `.` is what stands in no folder.
    """
    return "\n\n".join(_block(part, lines_by_folder(root / part)) for part in PARTS)


def lines_by_folder(part: Path) -> Counter[str]:
    """Return the lines of code in each folder of a part, with all that is below it."""
    lines: Counter[str] = Counter()
    for file in sorted(part.rglob("*")):
        names = file.relative_to(part).parts
        lines[names[0] if len(names) > 1 else "."] += _lines_of(file)
    return lines


def _lines_of(file: Path) -> int:
    if file.suffix in {".py", ".pyi"}:
        return python_lines(file.read_text(encoding="utf-8"))
    return sql_lines(file.read_text(encoding="utf-8")) if file.suffix == ".sql" else 0


def python_lines(source: str) -> int:
    """Count the lines with code."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {line for each in tokens if each.type not in NO_CODE for line in range(each.start[0], each.end[0] + 1)}
    return len(lines.difference(_docstring_lines(source)))


def _docstring_lines(source: str) -> Iterator[int]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node
        ):
            first = node.body[0]
            yield from range(first.lineno, (first.end_lineno or first.lineno) + 1)


def sql_lines(source: str) -> int:
    """Count the lines that are neither blank nor a comment."""
    return sum(1 for line in source.splitlines() if line.strip() and not line.lstrip().startswith("--"))


def _block(part: str, lines: Counter[str]) -> str:
    rows = [(part, sum(lines.values())), *((f"  {folder}", count) for folder, count in lines.most_common() if count)]
    return "\n".join(f"{name:28} {count:7,}" for name, count in rows)


if __name__ == "__main__":
    print(table(ROOT))
