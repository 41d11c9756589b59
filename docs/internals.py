"""Write docs/reference/internals.md from the headers of the SQL files: what no role may call is described where it is defined, once.

python docs/internals.py
"""

from __future__ import annotations

import re
from pathlib import Path

from pgrouse.install import schema

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/reference/internals.md"
HEAD = """# Inside the schema

The functions that no role but the owner may call. Their signatures may change with any version; what others call is in
[the protocol](protocol.md). This page is written by `docs/internals.py` from the headers of the files.
"""


def granted() -> set[str]:
    """Return the functions that some role may execute."""
    grants = re.findall(r"EXECUTE ON FUNCTION ([^']+)'", (ROOT / "sql/grants.sql").read_text())
    return {name for grant in grants for name in re.findall(r"messages\.(\w+)", grant)}


def functions() -> dict[str, str]:
    """Return the texts of the files that hold a function and no trigger, by name, whatever their folder."""
    texts = {each.name: each.text.decode() for each in schema.scripts() if each.kind == "object"}
    return {
        name: text for name, text in sorted(texts.items()) if "FUNCTION messages." in text and "TRIGGER" not in text
    }


def page() -> str:
    """Return the page as it should be."""
    return HEAD + "".join(_section(name, text) for name, text in functions().items() if name not in granted())


def _section(name: str, text: str) -> str:
    header, _, body = text.partition("CREATE OR REPLACE FUNCTION ")
    signature = body[: body.index("\nLANGUAGE")]
    words = "\n".join(line.removeprefix("--").strip() for line in header.strip().splitlines())
    return f"\n### messages.{name}\n\n```sql\n{signature}\n```\n\n{_as_text(words)}\n"


def _as_text(words: str) -> str:
    """Let nothing in a comment be read as a mark of Markdown."""
    return re.sub(r"([*<>|_])", r"\\\1", words)


if __name__ == "__main__":
    PAGE.write_text(page())
