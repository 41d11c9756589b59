"""Whether a page can be read by everybody, as far as axe and a look at its text can check."""

from __future__ import annotations

import re
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests.web.site import Visitor

AXE = Axe().axe_script
WIDE, NARROW = {"width": 1280, "height": 860}, {"width": 400, "height": 800}


def complaints(visitor: Visitor, path: str, **options: Any) -> list[str]:
    """Return the violations of a page, and whether it is wider than its window: wide and light, narrow and dark."""
    page = visitor.open(path, size=WIDE, color_scheme="light", bypass_csp=True, **options)
    found = page_complaints(page, path, "wide")
    page.emulate_media(color_scheme="dark")
    page.set_viewport_size(NARROW)  # type: ignore[arg-type]
    return found + page_complaints(page, path, "narrow")


def page_complaints(page: Page, path: str, size: str) -> list[str]:
    """Return the violations of a page as it is, and whether it is wider than its window."""
    found = [f"{path} {size}: {each}" for each in _violations(page)]
    if page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
        found.append(f"{path} {size}: wider than its window")
    if re.search(r"&(amp|quot|lt|gt|#\d+);", page.evaluate("document.querySelector('main').innerText")):
        found.append(f"{path} {size}: its text is escaped twice")
    return found


def _violations(page: Page) -> list[str]:
    # A page keeps the script, half a megabyte, until it is left.
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE)
    found = page.evaluate("axe.run({resultTypes: ['violations']}).then((results) => results.violations)")
    return [f"{each['id']} ({each['impact']}): {each['nodes'][0]['html'][:200]}" for each in found]
