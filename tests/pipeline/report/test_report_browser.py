"""The page in a real browser: it draws what it should, reports no error, and loads nothing."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.reports import crowded, hostile, nothing, page_of, rich
from tests.web.chromium import CHROMIUM, NO_CHROMIUM

pytestmark = pytest.mark.skipif(not Path(CHROMIUM).exists(), reason=NO_CHROMIUM)

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--v=0",
]
# The visible elements, written into the page once it has been drawn. The page's own policy would not permit a foreign
# script.
PROBE = """
<script>addEventListener("load", () => {
  const visible = (each) => each.checkVisibility();
  const size = (each) => { const box = each.getBoundingClientRect(); return [box.width, box.height]; };
  const drawing = [...document.querySelectorAll(".drawing")].find(visible);
  if (drawing) {
    const box = drawing.querySelector(".role-frame .background").getBoundingClientRect();
    drawing.dispatchEvent(new PointerEvent("pointermove", { clientX: box.right - 1, clientY: box.top + 1 }));
  }
  const tip = document.querySelector(".tip").innerText;
  drawing?.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowLeft" }));
  const filled = [...document.querySelectorAll(".drawing path[fill^=var], .drawing path[stroke^=var]")].filter(visible);
  document.body.dataset.seen = JSON.stringify({
    drawings: [...document.querySelectorAll("svg")].filter(visible).map(size),
    charts: [...document.querySelectorAll(".drawing")].filter(visible).map((each) => each.className),
    paths: filled.map((path) => path.getBBox().height),
    colours: filled.map((path) => getComputedStyle(path)).map((style) => [style.fill, style.stroke]),
    letters: [...document.querySelectorAll(".drawing text")].filter(visible)
      .map((each) => each.getBoundingClientRect().height),
    width: document.documentElement.scrollWidth, window: innerWidth,
    background: getComputedStyle(document.body).backgroundColor,
    tip, before: document.querySelector(".tip").innerText,
    fetched: performance.getEntriesByType("resource").map((entry) => entry.name),
  });
});</script>"""


@dataclass(frozen=True)
class Seen:
    """What the browser made of a page: the result of the probe, and the browser's complaints."""

    probe: dict[str, Any]
    complaints: list[str]


def show(html: str, folder: Path, *flags: str, width: int = 1280) -> Seen:
    """Open a page in the browser, with the probe and as it is."""
    _, output = browse(html, folder, "--dump-dom", *flags)
    complaints = [line for line in output.splitlines() if "CONSOLE" in line]
    return Seen(measure(html, folder, *flags, width=width), complaints)


def measure(html: str, folder: Path, *flags: str, width: int = 1280) -> dict[str, Any]:
    """Return what the probe saw."""
    watched = re.sub(r"<meta http-equiv=[^>]*>", "", html).replace("</body>", PROBE + "</body>")
    dom, _ = browse(watched, folder, "--dump-dom", f"--window-size={width},1000", *flags)
    found = re.search(r'data-seen="([^"]*)"', dom)
    assert found, dom[-2000:]
    probe: dict[str, Any] = json.loads(unescape(found[1]))
    return probe


def browse(html: str, folder: Path, *flags: str) -> tuple[str, str]:
    """Run the browser once; return what it printed."""
    file = folder / "report.html"
    file.write_text(html, encoding="utf-8")
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'profile'}", *flags, file.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    return done.stdout, done.stderr


@pytest.mark.long
def test_all_drawings_of_a_full_page_are_visible_and_nothing_is_fetched(tmp_path: Path) -> None:
    seen = show(page_of(rich), tmp_path)

    assert seen.complaints == []
    assert seen.probe["fetched"] == []
    assert seen.probe["charts"] == ["drawing wide"] * 4
    assert len(seen.probe["drawings"]) > 10
    assert all(width > 50 and height > 10 for width, height in seen.probe["drawings"])
    assert all(height > 0 for height in seen.probe["paths"])
    # The variables of the style are known where the drawings use them.
    assert ["rgb(42, 120, 214)", "none"] in seen.probe["colours"]
    assert seen.probe["tip"].startswith("2026-11-22 09:55\norder.placed: ")
    assert seen.probe["before"].startswith("2026-11-22 09:50\n")


@pytest.mark.long
def test_a_phone_gets_drawings_whose_letters_can_be_read(tmp_path: Path) -> None:
    probe = measure(page_of(rich), tmp_path, width=500)

    assert probe["charts"] == ["drawing narrow"] * 4
    assert all(height > 9 for height in probe["letters"])


@pytest.mark.long
@pytest.mark.parametrize(("scheme", "background"), [("0", "rgb(18, 18, 17)"), ("1", "rgb(246, 245, 242)")])
def test_the_page_follows_the_colour_scheme_of_the_reader(tmp_path: Path, scheme: str, background: str) -> None:
    seen = show(page_of(nothing), tmp_path, f"--blink-settings=preferredColorScheme={scheme}")

    assert seen.complaints == []
    assert seen.probe["background"] == background


@pytest.mark.long
@pytest.mark.parametrize("kind", [crowded, hostile])
def test_a_narrow_page_never_scrolls_sideways(tmp_path: Path, kind: Callable[[], str]) -> None:
    seen = show(page_of(kind), tmp_path, width=500)

    assert seen.complaints == []
    assert seen.probe["fetched"] == []
    assert seen.probe["width"] <= seen.probe["window"]
