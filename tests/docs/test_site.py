"""The documentation site builds strictly, has all pages, and is searched."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from docs import build_site
from playwright.sync_api import sync_playwright

import pgrouse
from tests.docs.page import ROOT
from tests.web.chromium import ARGUMENTS, CHROMIUM, NO_CHROMIUM


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as it is built."""
    built = tmp_path_factory.mktemp("site") / "site"
    with pytest.MonkeyPatch.context() as patch:
        _build_in(built, patch)
        assert build_site.build() == 0
    return built / "html"


@pytest.mark.long
def test_links_that_lead_nowhere_fail_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    _build_in(tmp_path / "site", monkeypatch)
    monkeypatch.setattr(build_site, "copy_pages", _two_pages)
    assert build_site.build() == 0
    capfd.readouterr()

    for wrong, told in (
        ("[gone](missing.md)", "page does not exist"),
        ("[gone](second.md#no-such-heading)", "anchor does not exist"),
    ):
        monkeypatch.setattr(build_site, "copy_pages", lambda link=wrong: _two_pages(link))
        assert build_site.build() != 0, wrong
        assert told in re.sub(r"\x1b\[[\d;]*m", "", "".join(capfd.readouterr())), wrong


def test_the_menu_has_every_page() -> None:
    menu = set(_pages(tomllib.loads((ROOT / "docs" / build_site.CONFIG).read_text())["project"]["nav"]))
    pages = {str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md")}

    assert {page for page in pages if not page.startswith("docs/decisions/")} <= menu
    assert {page for page in menu if not (ROOT / page).exists()} == {"docs/reference/api.md"}


def test_the_list_of_decisions_has_the_title_of_each() -> None:
    folder = ROOT / "docs" / "decisions"
    titles = {page.name: page.read_text().partition("\n")[0][2:] for page in folder.glob("0*.md")}

    listed = re.findall(r"^- \[(\d+)\]\((.+)\): (.+)$", (folder / "README.md").read_text(), re.MULTILINE)

    assert {name: f"{number}: {title}" for number, name, title in listed} == titles
    assert [name for _, name, _ in listed] == sorted(titles)


@pytest.mark.long
def test_no_link_of_the_site_leads_to_a_folder_without_a_page(site: Path) -> None:
    pages = {str(page.parent.relative_to(site)) for page in site.rglob("index.html")}
    links = {
        (str(page.relative_to(site)), target)
        for page in site.rglob("index.html")
        for target in re.findall(r'<a [^>]*href="((?:\.\./|\./)*[\w./-]*/)"', page.read_text())
    }

    dead = {
        link
        for link in links
        if str((site / link[0]).parent.joinpath(link[1]).resolve().relative_to(site)) not in pages
    }

    assert len(links) > 1000
    assert dead == set()


@pytest.mark.parametrize(
    ("words", "found_on"),
    [
        ("retry", "docs/reference/policies/"),
        ("exactly once", "docs/exactly-once/"),
        ("rate limit", "docs/reference/policies/"),
        ("stuck", "docs/runbooks/"),
    ],
)
def test_the_search_finds(site: Path, words: str, found_on: str) -> None:
    entries = json.loads((site / "search.json").read_text())["items"]

    found = {entry["location"].partition("#")[0] for entry in entries if words in str(entry).lower()}

    assert found_on in found


def test_every_public_name_and_method_is_on_the_page_of_the_api(site: Path) -> None:
    page = (site / "docs" / "reference" / "api" / "index.html").read_text()

    assert len(pgrouse.__all__) > 40
    assert [name for name in pgrouse.__all__ if f'id="{name.lower()}' not in page] == []
    assert "Publish one message" in page
    assert 'id="pgrouse.client.client.Client.redrive_edited"' in page
    assert 'id="pgrouse.handlers.context.AsyncContext.complete"' in page
    assert "pgrouse.client.client.Client._" not in page


def test_blocks_of_code_are_blocks_and_pages_name_no_other_host(site: Path) -> None:
    pages = {path: path.read_text() for path in site.rglob("*.html")}

    assert len(pages) > 80
    assert {
        path for path, text in pages.items() if "```" in re.sub(r"<code>.*?</code>", "", text, flags=re.DOTALL)
    } == set()
    loaded = re.compile(r'<(?:script|img|iframe)[^>]* src="?(?:https?:)?//|<link[^>]* rel="?stylesheet"?[^>]*https?://')
    assert {path for path, text in pages.items() if loaded.search(text)} == set()


# The blocks of code of a page that are wider than what is shown of them.
CUT = """
    [...document.querySelectorAll("pre > code")].filter(each => each.scrollWidth > each.clientWidth)
        .map(each => each.textContent.slice(0, 60))
"""


@pytest.mark.long
def test_no_line_of_a_block_of_code_is_cut(site: Path) -> None:
    if not Path(CHROMIUM).exists():
        pytest.skip(NO_CHROMIUM)
    cut = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS, timeout=90_000)
        tab = browser.new_page(viewport={"width": 1280, "height": 800})
        for page in sorted(site.rglob("index.html")):
            tab.goto(page.as_uri())
            cut[str(page.relative_to(site))] = tab.evaluate(CUT)
        browser.close()

    assert len(cut) > 80
    assert {page: blocks for page, blocks in cut.items() if blocks} == {}


def _build_in(folder: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(build_site, "SITE", folder)
    patch.setattr(build_site, "PAGES", folder / "pages")


def _two_pages(link: str = "") -> None:
    """Make two pages with the configuration of the site: all of its pages take ten times as long."""
    text = (ROOT / "docs" / build_site.CONFIG).read_text()
    build_site.PAGES.mkdir(parents=True, exist_ok=True)
    menu = 'nav = ["first.md", "second.md"]'
    (build_site.SITE / build_site.CONFIG).write_text(
        re.sub(r"^nav = \[.*?^\]$", menu, text, count=1, flags=re.DOTALL | re.MULTILINE)
    )
    (build_site.PAGES / "first.md").write_text(f"# First\n\n[more](second.md#a-heading)\n\n{link}\n")
    (build_site.PAGES / "second.md").write_text("# Second\n\n## A heading\n")


def _pages(menu: list[Any]) -> list[str]:
    """Return all pages of a menu."""
    found: list[str] = []
    for entry in menu:
        for item in entry.values() if isinstance(entry, dict) else [entry]:
            found += [item] if isinstance(item, str) else _pages(item)
    return [item for item in found if item.endswith(".md")]
