"""The dashboard for tests: a web server in a thread, and a browser."""

from __future__ import annotations

import signal
import threading
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page

from pgrouse.config import config
from pgrouse.web.access import listen_socket
from pgrouse.web.server import WebServer

WIDE, NARROW = {"width": 1280, "height": 860}, {"width": 400, "height": 800}


class Site:
    """A web server on a free port.

    Args:
        dsn: the database that it shows.
    """

    def __init__(self, dsn: str, **web: Any) -> None:
        # A busy machine may take longer than the default timeout of a statement.
        given = {"listen": "127.0.0.1:0", "run_maintenance": False, "statement_timeout": "60s", **web}
        self.settings = config.load(None, {}, {"database": {"dsn": dsn}, "web": given})
        # The storage of the browser for this server, by the options of its windows.
        self.contexts: dict[str, BrowserContext] = {}
        self.begin(self.settings.web.listen)

    def begin(self, address: str) -> None:
        """Start serving."""
        self._socket = listen_socket.bind(address)
        self.url = listen_socket.url(self._socket)
        self.server = WebServer(self.settings)
        self._thread = threading.Thread(target=self.server.run, args=([self._socket],), daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """Host and port."""
        return self.url.removeprefix("http://")

    @property
    def live_updates(self) -> Any:
        """The part that keeps the pages up to date."""
        return self.server.application.state.live_updates

    def stop(self) -> None:
        """Stop as on SIGTERM, and wait until it has."""
        while self.contexts:
            self.contexts.popitem()[1].close()
        self.server.handle_exit(signal.SIGTERM, None)
        self._thread.join(timeout=60)
        assert not self._thread.is_alive(), "the web server does not end"
        self._socket.close()


@dataclass
class Visitor:
    """A user with a browser. Its errors are recorded, and fail the test at its end."""

    browser: Browser
    site: Site
    complaints: list[str] = field(default_factory=list)
    # Errors that the test itself causes, by a part of their text.
    expected: list[str] = field(default_factory=list)
    _pages: list[Page] = field(default_factory=list)

    def open(self, path: str = "/", *, size: Any = WIDE, **options: Any) -> Page:
        """Open a page in its own window. Windows with the same options share the storage of the browser.

        Nothing moves, unless `reduced_motion="no-preference"`: to draw the dot that breathes took a fifth of the
        processor time of these tests.
        """
        given = {"viewport": size, "base_url": self.site.url, "reduced_motion": "reduce", **options}
        page = self._context(**given).new_page()
        self._pages.append(page)
        page.set_default_timeout(30_000)
        page.on("console", lambda said: self._note(said.type, said.text))
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.goto(path)
        return page

    def leave(self) -> list[str]:
        """Close all windows; return their errors."""
        for page in self._pages:
            page.close()
        return [each for each in self.complaints if not any(part in each for part in self.expected)]

    def _context(self, **options: Any) -> BrowserContext:
        known = self.site.contexts
        key = repr(sorted(options.items()))
        if key not in known:
            known[key] = self.browser.new_context(**options)
        return known[key]

    def _note(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(f"{kind}: {text}")


def is_live(page: Page) -> None:
    """Wait until a page receives updates."""
    page.wait_for_selector('#live[data-state="live"]')


BROKEN = """
() => [...document.querySelectorAll('td, th')].flatMap(cell => {
  const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), broken = [];
  for (let node; (node = walker.nextNode());) for (const word of node.data.matchAll(/[^\\s.:_-]+/g)) {
    const range = document.createRange();
    range.setStart(node, word.index);
    range.setEnd(node, word.index + word[0].length);
    if (new Set([...range.getClientRects()].map(line => Math.round(line.top))).size > 1) broken.push(word[0]);
  }
  return broken;
})"""


def broken_words(page: Page) -> list[str]:
    """Return the words of tables that stand on more than one line."""
    found: list[str] = page.evaluate(BROKEN)
    return found


def overflow(page: Page) -> int:
    """Return by how many pixels a page is wider than its window."""
    wider: int = page.evaluate(
        "Math.max(0, document.documentElement.scrollWidth - document.documentElement.clientWidth)"
    )
    return wider
