"""Pages of the reference that are in part generated."""

from __future__ import annotations

import re

import click


def replaced(page: str, heading: str, section: str) -> str:
    """Return a page with another text between a heading and the next one."""
    before, found, after = page.partition(f"\n{heading}\n")
    if not found:
        raise click.ClickException(f"a page of docs/reference/ has no heading {heading!r}: add it where it belongs")
    below = re.search(r"^##+ ", after, re.MULTILINE)
    return f"{before}{found}\n{section}\n{after[below.start() :]}" if below else f"{before}{found}\n{section}"
