"""The contracts of SQL functions: the contents of their heads, missing parts, and their sections of the reference."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from docs import internals
from docs.page import replaced

# The parts of a head. The last two are for developers who change the function: they are not on the page.
PARTS = ("Arguments", "Result", "Errors", "Locks", "Cost", "Repeat", "Called by", "Inside")
SHOWN = PARTS[:6]
# Parts with these texts are left out of the page, because they apply to every function that has no other text.
NOTHING = ("none.", "nothing.")
WIDTH = 120
LABEL = re.compile(rf"({'|'.join(PARTS)}): (.*)")
RAISED = re.compile(r"ERRCODE = '(\w{5})'")
NAME = re.compile(r"`messages\.(\w+)`")
# In the order of the columns of the table.
ROLES = ("publisher", "worker", "operator", "analyst", "maintainer")
RIGHTS = "### Who may execute what"


@dataclass(frozen=True)
class Contract:
    """A function, and the contents of its head."""

    name: str
    signature: str
    meaning: str
    parts: dict[str, str]
    raised: frozenset[str]

    def problems(self) -> Iterator[str]:
        """Yield what the head lacks."""
        if not self.meaning:
            yield "does not begin with what the function does"
        yield from (f"has no part `{part}:`" for part in self._needed() if not self.parts.get(part))
        yield from (f"does not name the error {code}" for code in sorted(self.raised) if not self._names(code))

    def _names(self, error: str) -> bool:
        errors = self.parts.get("Errors", "")
        return error in errors or errors.startswith("as `messages.")

    def _needed(self) -> tuple[str, ...]:
        says_result = "RETURNS void" in self.signature or self.meaning.startswith("Returns ")
        return ("Errors", "Locks", "Called by") if says_result else ("Result", "Errors", "Locks", "Called by")


def contracts() -> dict[str, Contract]:
    """Return the contract of every function that is not a trigger, by name."""
    return {name: contract(name, text) for name, text in internals.functions().items()}


def contract(name: str, text: str) -> Contract:
    """Parse the contract in the text of a function."""
    head, _, body = text.partition("CREATE OR REPLACE FUNCTION ")
    meaning, parts = _parts([re.sub("^-- ?", "", line) for line in head.strip().splitlines()])
    raised = frozenset(RAISED.findall(re.sub("--.*", "", body)))
    return Contract(name, body[: body.index("\nLANGUAGE")], meaning, parts, raised)


def problems() -> list[str]:
    """Return what is missing in the heads of the functions that some role may execute."""
    granted = internals.granted()
    return [
        f"the head of messages.{each.name} {problem}"
        for each in contracts().values()
        if each.name in granted
        for problem in each.problems()
    ]


def written(page: str) -> str:
    """Return the page of the protocol with its current sections of functions, and its current table of rights."""
    known, rights = contracts(), internals.rights()
    headings = set(re.findall(r"^### messages\.(\w+)$", page, re.MULTILINE))
    # Include other functions only if they are on the page already; a table may have the name of a function.
    described = set(re.findall(r"^### messages\.(\w+)\n\n```sql$", page, re.MULTILINE))
    for name in sorted(described | (rights.keys() & known.keys())):
        page = replaced(page, f"### messages.{name}", section(known[name], rights.get(name, []), headings))
    return replaced(page, RIGHTS, _table(rights))


def _parts(lines: list[str]) -> tuple[str, dict[str, str]]:
    """Return the text above the first label, and the text of each part."""
    texts: dict[str, list[str]] = {"": []}
    for line in lines:
        found = LABEL.match(line)
        if found:
            texts[found[1]] = []
        texts[list(texts)[-1]].append(found[2] if found else line)
    whole = {name: "\n".join(text).strip() for name, text in texts.items()}
    return whole.pop(""), whole


def section(contract: Contract, roles: list[str], headings: set[str]) -> str:
    """Return the section of a function, without its heading."""
    said = {name: contract.parts[name] for name in SHOWN if contract.parts.get(name, "none.") not in NOTHING}
    rights = ", ".join(f"`{role}`" for role in roles) or "no role"
    meaning, *texts = (_linked(text, headings - {contract.name}) for text in (contract.meaning, *said.values()))
    items = [f"**{name}.** {text[0].upper()}{text[1:]}" for name, text in zip(said, texts, strict=True)]
    parts = _list([*items, f"**Rights.** {rights}."])
    return f"```sql\n{contract.signature}\n```\n\n{wrapped(meaning, WIDTH)}\n\n{parts}\n"


def _linked(text: str, headings: set[str]) -> str:
    """Turn the names of functions and tables into links to their sections."""
    return NAME.sub(lambda name: f"[{name[0]}](#messages{name[1]})" if name[1] in headings else name[0], text)


def _list(items: list[str]) -> str:
    """Return a list of the parts; short parts share a line."""
    lines = items[:1]
    for item in items[1:]:
        if "\n\n" not in lines[-1] + item and len(lines[-1]) + len(item) < WIDTH - 3:
            lines[-1] += f" {item}"
        else:
            lines.append(item)
    return "\n".join("- " + textwrap.indent(wrapped(line, WIDTH - 2), "  ")[2:] for line in lines)


def wrapped(text: str, width: int) -> str:
    """Wrap the paragraphs and the list items of a text; its tables and blocks of code stay as they are."""
    done: list[str] = []
    open_lines: list[str] = []
    in_code = False
    for line in [*text.splitlines(), ""]:
        in_code ^= line.startswith("```")
        keeps = in_code or not line or line.startswith(("|", "```"))
        if open_lines and (keeps or line.startswith("- ")):
            done.append(_filled(open_lines, width))
            open_lines = []
        (done if keeps else open_lines).append(line)
    return "\n".join(done).strip()


def _filled(lines: list[str], width: int) -> str:
    indent = "  " if lines[0].startswith("- ") else ""
    text = " ".join(map(str.strip, lines))
    return textwrap.fill(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _table(rights: dict[str, list[str]]) -> str:
    rows = [("function", *ROLES), ("---",) * (1 + len(ROLES))]
    rows += [(f"`{name}`", *("yes" if role in rights[name] else "" for role in ROLES)) for name in sorted(rights)]
    return "".join(f"|{'|'.join(f' {cell} ' if cell else ' ' for cell in row)}|\n" for row in rows)
