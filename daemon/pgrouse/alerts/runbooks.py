"""The runbooks: what to do about everything that alerts, one section for each, from docs/runbooks.md."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from pathlib import Path

# The address at which the web server shows them.
PAGE = "/runbooks"
SECTION = re.compile(r"^## (?P<title>[^\n]+)\n\nReported by: (?P<reporters>.+?)\n\n", re.MULTILINE | re.DOTALL)
TITLE = re.compile(r"^## ([^\n]+)$", re.MULTILINE)
NAME = re.compile(r"`(\w+)`")


def text() -> str:
    """Return the runbooks as Markdown: of an installed wheel, or of the checkout."""
    packaged = files("pgrouse") / "runbooks.md"
    found = packaged if packaged.is_file() else Path(__file__).parents[3] / "docs" / "runbooks.md"
    return found.read_text("utf-8")


def anchor(title: str) -> str:
    """Return the anchor of a section."""
    return title.lower().replace(" ", "-")


@cache
def sections() -> list[tuple[str, str]]:
    """Return the title and the anchor of each section."""
    return [(title, anchor(title)) for title in TITLE.findall(text())]


def path(name: str) -> str | None:
    """Return the page of the runbook for a rule, a kind of alert, or a code of the doctor; None if there is none."""
    found = _anchors().get(name)
    return None if found is None else f"{PAGE}#{found}"


@cache
def _anchors() -> dict[str, str]:
    try:
        sections = list(SECTION.finditer(text()))
    except OSError:
        # Someone may have built a package without them: an alert must not fail because of its link.
        sections = []
    return {
        name: anchor(section["title"]) for section in reversed(sections) for name in NAME.findall(section["reporters"])
    }
