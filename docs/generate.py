"""Writes the generated parts of the reference: `python -m docs.generate`.

With `--check`, it only reports stale pages.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import click
from docs import command_line, contracts, http_api

REFERENCE = Path(__file__).parent / "reference"
PAGES: dict[str, Callable[[str], str]] = {
    "protocol.md": contracts.written,
    "cli.md": command_line.written,
    "http.md": http_api.written,
}


def write() -> None:
    """Write every page that is stale."""
    for name, text in stale().items():
        (REFERENCE / name).write_text(text, encoding="utf-8")
        click.echo(f"wrote docs/reference/{name}")


def stale() -> dict[str, str]:
    """Return the pages that differ from their generated text, with that text."""
    pages = {name: (REFERENCE / name).read_text(encoding="utf-8") for name in PAGES}
    return {name: now for name, page in pages.items() if (now := PAGES[name](page)) != page}


def problems() -> list[str]:
    """Return the problems that make the reference wrong."""
    return [*contracts.problems(), *(f"docs/reference/{name} is stale: python -m docs.generate" for name in stale())]


def main(arguments: list[str]) -> int:
    """Write the pages, or check them and their sources; return the exit code."""
    if arguments not in ([], ["--check"]):
        click.echo("docs.generate: the only argument is --check", err=True)
        return 2
    if not arguments:
        write()
    for problem in (found := problems()):
        click.echo(problem, err=True)
    return 1 if found else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
