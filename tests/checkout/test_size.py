"""The command that counts lines of code."""

from __future__ import annotations

from pathlib import Path

from tests import size

PYTHON = '''"""What it does.

More of it.
"""

# A comment.
VALUE = """a text
of two lines"""


def call(  # why
    value: str,
) -> str:
    """Say what it returns."""
    return value
'''


def test_blank_lines_comments_and_docstrings_are_not_counted(tmp_path: Path) -> None:
    package = tmp_path / "daemon" / "pgrouse"
    (package / "worker" / "loop").mkdir(parents=True)
    (package / "worker" / "loop" / "a.py").write_text(PYTHON)
    (package / "worker" / "b.py").write_text("A = 1\n")
    (package / "errors.py").write_text("B = 1\n")
    (tmp_path / "sql" / "claim").mkdir(parents=True)
    (tmp_path / "sql" / "claim" / "claim.sql").write_text("-- Claim.\n\nSELECT 1\n  -- why\n  + 1;\n")

    lines = [line.split() for line in size.table(tmp_path).splitlines()]

    assert ["daemon/pgrouse", "8"] in lines
    assert ["worker", "7"] in lines
    assert [".", "1"] in lines
    assert ["sql", "2"] in lines
