"""Builds the documentation site into .site/html, and serves it: `./go docs`.

The pages are copied first, in the layout of the repository, together with the files that they link to, so that a link
leads to the same place in both.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / ".site"
PAGES = SITE / "pages"
CONFIG = "zensical.toml"
STYLE = "site.css"
ADDRESS = "127.0.0.1:8000"
FIRST = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "CODE_OF_CONDUCT.md",
    "SECURITY.md",
    "sql/README.md",
    "examples/README.md",
)
LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]+)[^)]*\)")
# The public names, and their modules.
STUB = ROOT / "daemon" / "pgrouse" / "__init__.pyi"
NAME = re.compile(r"^from (\S+) import (\S+) as", re.MULTILINE)
API = """# Python API

The names that `from pgrouse import ...` provides, with their docstrings.
[Python](python.md) explains how the parts are used together.
"""
# The words after a language tell the tests how to treat a block. The site's Markdown would show them as text.
FENCE = re.compile(r"^( *```\w+) .+$", re.MULTILINE)


def build() -> int:
    """Build the site; return the exit code. A broken link or anchor is an error."""
    copy_pages()
    return _zensical("build", "--clean", "--strict")


def copy_pages() -> None:
    """Copy the pages, and all files of the repository that they link to."""
    shutil.rmtree(SITE, ignore_errors=True)
    pages = [ROOT / name for name in FIRST] + sorted((ROOT / "docs").rglob("*.md"))
    copied: set[Path] = set()
    while pages:
        page = pages.pop()
        if page not in copied:
            copied.add(page)
            _copy(page)
            pages += _linked(page)
    (PAGES / "docs" / "reference" / "api.md").write_text(_api(), encoding="utf-8")
    shutil.copy(ROOT / "docs" / CONFIG, SITE / CONFIG)
    shutil.copy(ROOT / "docs" / STYLE, PAGES / "docs" / STYLE)


def _copy(file: Path) -> None:
    target = PAGES / file.relative_to(ROOT)
    target.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".md":
        target.write_text(_for_the_site(file), encoding="utf-8")
    else:
        shutil.copy(file, target)


def _for_the_site(page: Path) -> str:
    """Return the text of a page. A link to a folder, which is not a page, is replaced by its text."""
    text = FENCE.sub(r"\1", page.read_text(encoding="utf-8"))
    return LINK.sub(lambda link: link[1] if _is_bare_folder(page.parent / link[2]) else link[0], text)


def _is_bare_folder(path: Path) -> bool:
    return path.is_dir() and not (path / "README.md").exists()


def _linked(page: Path) -> Iterator[Path]:
    """Yield the files of the repository that a page links to."""
    if page.suffix != ".md":
        return
    for _, target in LINK.findall(page.read_text(encoding="utf-8")):
        file = (page.parent / target).resolve()
        if file.is_relative_to(ROOT) and file.is_file():
            yield file


def _api() -> str:
    """Return the page of the public names; Zensical reads their docstrings."""
    names = sorted(NAME.findall(STUB.read_text(encoding="utf-8")), key=lambda found: found[1].lower())
    return API + "".join(f"\n## {name}\n\n::: {module}.{name}\n" for module, name in names)


def _zensical(*arguments: str) -> int:
    command = [str(Path(sys.executable).with_name("zensical")), *arguments]
    return subprocess.run(command, cwd=SITE, check=False).returncode  # noqa: S603 - of the same environment


def main(arguments: list[str]) -> int:
    """Build the site, and serve it until Ctrl-C, unless only the build is wanted."""
    if arguments not in ([], ["--build"]):
        click.echo("go docs: the only argument is --build", err=True)
        return 2
    if code := build():
        return code
    if arguments:
        click.echo(f"The site is in {SITE / 'html'}.")
        return 0
    click.echo(f"The site is at http://{ADDRESS}; Ctrl-C ends it.")
    try:
        return _zensical("serve", "--dev-addr", ADDRESS)
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
