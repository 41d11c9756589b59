"""The pages of the documentation, as the tests read them: headings, blocks of code, tables, links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Links in text, not in code: [words](target).
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A block of code.

    Attributes:
        kind: the words behind the fence, as `sql runnable`.
        text: its content.
        line: the line of its fence.
        end: the line of the fence that ends it.
    """

    kind: str
    text: str
    line: int
    end: int


class Page:
    """One page, by its path in the repository."""

    def __init__(self, path: str | Path) -> None:
        self.path = ROOT / path
        self.name = str(self.path.relative_to(ROOT))
        self.text = self.path.read_text(encoding="utf-8")

    @cached_property
    def blocks(self) -> list[Block]:
        """All blocks of code, in order."""
        lines = self.text.split("\n")
        fences = [n for n, line in enumerate(lines) if line.startswith("```")]
        assert len(fences) % 2 == 0, f"{self.name}: a block of code does not end"
        return [
            Block(lines[begin].removeprefix("```").strip(), "\n".join(lines[begin + 1 : end]), begin + 1, end + 1)
            for begin, end in zip(fences[::2], fences[1::2], strict=True)
        ]

    @cached_property
    def prose(self) -> str:
        """The text without its blocks of code; every line keeps its number."""
        lines = self.text.split("\n")
        for block in self.blocks:
            lines[block.line - 1 : block.end] = [""] * (block.end - block.line + 1)
        return "\n".join(lines)

    def headings(self) -> list[tuple[int, str]]:
        """Return the line number and the text of each heading, without its code marks."""
        return self._headings

    @cached_property
    def _headings(self) -> list[tuple[int, str]]:
        lines = enumerate(self.prose.split("\n"), 1)
        found = [(number, re.fullmatch(r"#{1,6} (.+?)\s*", line)) for number, line in lines if line.startswith("#")]
        return [(number, heading[1].replace("`", "")) for number, heading in found if heading]

    def anchors(self) -> set[str]:
        """Return the possible targets of links into the page, as GitHub makes them from the headings."""
        return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for _, text in self.headings()}

    def links(self) -> Iterator[tuple[int, str]]:
        """Yield the line number and the target of each link to this repository. Its text may span several lines."""
        words = re.sub(r"`[^`\n]*`", lambda code: " " * len(code[0]), self.prose)
        for found in LINK.finditer(words):
            if not re.match(r"[a-z]+:", found[1]):
                yield words.count("\n", 0, found.start(1)) + 1, found[1]

    def section(self, heading: str) -> Page:
        """Return a section of the page: what is below a heading, up to the next one of the same or a higher rank."""
        lines = self.text.split("\n")
        begin = next((n for n, text in self.headings() if text == heading), None)
        assert begin is not None, f"{self.name} has no section {heading!r}"
        rank = _rank(lines[begin - 1])
        end = next((n for n, _ in self.headings() if n > begin and _rank(lines[n - 1]) <= rank), len(lines) + 1)
        part = Page.__new__(Page)
        part.path, part.name, part.text = self.path, f"{self.name}, {heading}", "\n".join(lines[begin : end - 1])
        return part

    def rows(self) -> list[list[str]]:
        """Return the cells of every row of the page's tables, without the rows of titles."""
        lines = self.prose.split("\n")
        return [
            _cells(line)
            for line, below in zip(lines, [*lines[1:], ""], strict=True)
            if line.startswith("|") and not _is_rule(line) and not _is_rule(below)
        ]


def pages() -> list[Page]:
    """Return every page of the repository that users read."""
    return [Page(path) for path in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])]


def _rank(heading: str) -> int:
    return len(heading) - len(heading.lstrip("#"))


def _cells(line: str) -> list[str]:
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def _is_rule(line: str) -> bool:
    return bool(re.fullmatch(r"\|[-:| ]+\|", line.strip()))
