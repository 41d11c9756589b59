"""Print a page about the functions that no role may call, from the heads of their files.

sql/README.md describes in which order they run.

.venv/bin/python docs/internals.py
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from pgrouse.database.install import schema

ROOT = Path(__file__).resolve().parents[1]
HEAD = """# Inside the schema

The functions that no role but the owner may call. Their signatures may change with any version; what others call is in
docs/reference/protocol.md.
"""

FUNCTION = re.compile(r"^((?:--.*\n)*CREATE OR REPLACE FUNCTION messages\.(\w+)[\s\S]*?^\$\$;)", re.MULTILINE)


def rights() -> dict[str, list[str]]:
    """Return the functions that a role may execute, with these roles, in the order of the grants."""
    found: dict[str, list[str]] = {}
    for role, functions in re.findall(
        r"\['messages_(\w+)', 'EXECUTE ON FUNCTION ([^']+)'", (ROOT / "sql/grants.sql").read_text()
    ):
        for name in re.findall(r"messages\.(\w+)", functions):
            found.setdefault(name, []).append(role)
    return found


def granted() -> set[str]:
    """Return the functions that a role may execute."""
    return set(rights())


def functions() -> dict[str, str]:
    """Return each function that is not a trigger with the comment above it, by name, from any file."""
    texts = [each.text.decode() for each in schema.scripts() if each.kind == "object"]
    found = {name: function for text in texts for function, name in FUNCTION.findall(text)}
    return {name: function for name, function in sorted(found.items()) if "RETURNS trigger" not in function}


def internal() -> dict[str, str]:
    """Return the texts of the files of functions that no role may call."""
    return {name: text for name, text in functions().items() if name not in granted()}


def page() -> str:
    """Return the page."""
    return HEAD + "".join(_section(name, text) for name, text in internal().items())


def _section(name: str, text: str) -> str:
    header, _, body = text.partition("CREATE OR REPLACE FUNCTION ")
    signature = body[: body.index("\nLANGUAGE")]
    words = "\n".join(line.removeprefix("--").strip() for line in header.strip().splitlines())
    return f"\n### messages.{name}\n\n```sql\n{signature}\n```\n\n{_as_text(words)}\n"


def _as_text(words: str) -> str:
    """Escape a comment so that nothing in it is read as Markdown."""
    return re.sub(r"([*<>|_])", r"\\\1", words)


if __name__ == "__main__":
    sys.stdout.write(page())
