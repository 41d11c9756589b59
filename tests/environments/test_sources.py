"""The texts of all functions mean the same in each session, locale and encoding."""

from __future__ import annotations

import re
from collections.abc import Iterator

from pgrouse.database.install import schema

PIECE = re.compile(
    r"--[^\n]*|/\*.*?\*/|(?P<escaped>[Ee]'(?:[^'\\]|\\.|'')*'(?:\s*\n\s*'(?:[^'\\]|\\.|'')*')*)|[Uu]&'(?:[^']|'')*'"
    r"|(?P<plain>'(?:[^']|'')*')|\"[^\"]*\"|\w+|.",
    re.DOTALL,
)
# These follow the locale of the database, unless their argument has another.
CASED = re.compile(r"\b(?:lower|upper|initcap)\s*\(", re.IGNORECASE)
ANY_CASE = re.compile(r"\bILIKE\b|~~?\*", re.IGNORECASE)


def files() -> Iterator[tuple[str, str]]:
    """Yield every SQL file that a server may run."""
    root = schema.sql_root()
    for folder in (root, *(each for each in root.iterdir() if each.is_dir())):
        yield from ((each.name, each.read_text("utf-8")) for each in folder.iterdir() if each.name.endswith(".sql"))


def without_comments(text: str) -> str:
    return "".join(found.group() for found in PIECE.finditer(text) if not found.group().startswith(("--", "/*")))


def argument(text: str, start: int) -> str:
    """Return what is between the parenthesis before this place and the one that closes it."""
    depth = 1
    for place in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if not depth:
            return text[start:place]
    raise AssertionError(text[start:])


def test_no_literal_depends_on_standard_conforming_strings() -> None:
    bad = [
        (name, found.group())
        for name, text in files()
        for found in PIECE.finditer(text)
        if (found["plain"] and "\\" in found.group()) or found.group()[:2].lower() == "u&"
    ]

    assert bad == []


def test_all_files_are_ascii() -> None:
    assert [name for name, text in files() if not text.isascii()] == []


def test_no_function_follows_the_locale_of_the_database() -> None:
    texts = [(name, without_comments(text)) for name, text in files()]
    cased = [(name, argument(text, found.end())) for name, text in texts for found in CASED.finditer(text)]

    assert [(name, given) for name, given in cased if not given.endswith('COLLATE "C"')] == []
    assert [(name, found.group()) for name, text in texts for found in ANY_CASE.finditer(text)] == []
    assert len(cased) > 5
